// A whole MLP in one kernel each way: a thread block takes ROWS rows of the batch through all layers and the head.
//
// Activations stay in shared memory and registers; weights stream from L2 through a ring of STAGES tiles, each one bulk
// copy (Hopper and later). The grid is (batch / ROWS, networks). Products have bfloat16 operands and float32 sums.
// A third kernel makes the gradients of all weights.
//
// Set by the compiler's command line:
//   W        width of the layers, a multiple of 32, above 512 of 64
//   INPUTS   width of the network's input, padded to a multiple of 64
//   OUT      outputs of the linear head, padded to a multiple of 64
//   LAYERS   layers after the first
//   ROWS     rows of a block's tile
//   SPAN     rows of them that one warp computes, a multiple of 16
//   DEPTH    of the reduction in one tile of weights
//   STAGES   tiles of weights in flight
//   NORM     1: LayerNorm before the activation
//   BLOCK    layers that a skip connection goes around; 0: none
//   SAVE     what the forward kernel writes for the others: 0 nothing, 1 what input gradients need, 2 everything
//   GRADS    1: the backward kernel writes what the gradients of the weights need
//   DX       1: and the gradient of the input
//   SIDE     of the square tiles of the weights' gradients, a multiple of 64
//   TRUNK_FORWARD, TRUNK_BACKWARD, TRUNK_WEIGHTS   which of the three is compiled
//
// A warp computes SPAN × COLS of each layer's output, held as the accumulators of mma.m16n8k16: thread `lane` has rows
// lane / 4 and lane / 4 + 8 of each 16 and columns 2 (lane % 4), 2 (lane % 4) + 1 of each 8.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;  // its bits

#define COLS (W <= 512 ? 32 : 64)
#define ACROSS (W / COLS)     // warps side by side
#define GROUPS (ROWS / SPAN)  // of warps, one below the other
#define THREADS (32 * ACROSS * GROUPS)  // at most 512, of which a multiprocessor has registers for as many
static_assert(ROWS / SPAN <= 2, "each group has a barrier of its own");
#define TEAM (32 * ACROSS)  // threads of a group: it has rows of its own, and shares only weights with the others
#define MT (SPAN / 16)
#define NT (COLS / 8)
#define WARPS (ACROSS * GROUPS)
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define A_COLS MAX(MAX(INPUTS, OUT), W)
#define A_STRIDE (A_COLS + 8)  // eight more elements: no bank conflicts
#define F_STRIDE (W + 8)  // of tiles of weights going forward, and of rows that wait to be written or read
#define B_STRIDE (DEPTH + 8)
#define H_STRIDE (OUT + 8)  // of tiles of the head going forward
#define F_TILE (DEPTH * F_STRIDE)
#define H_TILE (DEPTH * H_STRIDE)
#define B_TILE (W * B_STRIDE)
#define X_TILE (INPUTS * B_STRIDE)  // of the first layer, for the gradient of the input
#define TILE MAX(MAX(F_TILE, H_TILE), MAX(B_TILE, X_TILE))
#define SUMS (3 * (1 + LAYERS) * W + OUT)  // gradients of vectors: bias, scale and shift of each layer, bias of the head
#define EPSILON 1e-6f
#define EACH(mi, ni, i) \
  _Pragma("unroll") for (int mi = 0; mi < MT; mi++) _Pragma("unroll") for (int ni = 0; ni < NT; ni++) \
      _Pragma("unroll") for (int i = 0; i < 4; i++)
#define EACH_PAIR(mi, ni, h) \
  _Pragma("unroll") for (int mi = 0; mi < MT; mi++) _Pragma("unroll") for (int ni = 0; ni < NT; ni++) \
      _Pragma("unroll") for (int h = 0; h < 2; h++)

#ifndef EMULATED  // the tests have these for a CPU

#define SHARED extern __shared__ __align__(128) char shared[];

__device__ __forceinline__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void load_matrices(u32 (&r)[4], const bf16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address(p)));
}

__device__ __forceinline__ void load_transposed(u32 (&r)[4], const bf16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address(p)));
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Barriers that count the bytes of bulk copies; a phase ends when all that were announced have arrived.
__device__ __forceinline__ void start_barrier(u64* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(barrier)) : "memory");
}
__device__ __forceinline__ void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void announce(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(address(to)), "l"(from), "r"(bytes), "r"(address(barrier)) : "memory");
}
__device__ __forceinline__ void wait_for(u64* barrier, u32 phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\nbra again;\nover:\n}"
      ::"r"(address(barrier)), "r"(phase & 1) : "memory");
}

// Copies of 16 bytes by each thread, in groups.
__device__ __forceinline__ void copy_vector(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void wait_for_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

__device__ __forceinline__ u32 pack(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float2 unpack(u32 r) {
  return make_float2(__uint_as_float(r << 16), __uint_as_float(r & 0xffff0000u));
}
__device__ __forceinline__ float across(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ float sigmoid(float x) {  // (1 + tanh(x / 2)) / 2
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(0.5f * x));
  return 0.5f * y + 0.5f;
}
// Waits for all warps of a group, of which there are at most two.
__device__ __forceinline__ void sync_group(int group, int threads) {
  if (group == 0) asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  else asm volatile("bar.sync 2, %0;" ::"r"(threads) : "memory");
}
__device__ __forceinline__ void sync_lanes() { __syncwarp(); }
// The count before; what the thread did before is seen by those that count later.
__device__ __forceinline__ u32 count_up(u32* counter) {
  __threadfence_block();
  return atomicAdd(counter, 1);
}

#endif

// Where a thread's part of the tile lies.

struct Place {
  int lane, group, column, row;  // `row` and `column` of its first element

  __device__ __forceinline__ Place() {
    const int warp = threadIdx.x / 32;
    lane = threadIdx.x % 32;
    group = warp / ACROSS;
    column = warp % ACROSS * COLS + lane % 4 * 2;
    row = group * SPAN + lane / 4;
  }
  __device__ __forceinline__ int first_column() const { return column - lane % 4 * 2; }
};

// The group's rows of W elements from shared memory to a row-major array, 16 bytes at a time.

__device__ __forceinline__ void write_tile(bf16* to, int to_stride, const bf16* tile, int stride) {
  for (int i = threadIdx.x % TEAM; i < SPAN * W / 8; i += TEAM) {
    const int row = threadIdx.x / TEAM * SPAN + i / (W / 8), col = i % (W / 8) * 8;
    *(uint4*)(to + row * to_stride + col) = *(const uint4*)(tile + row * stride + col);
  }
}

// True for the last of all warps that asks, in one of its threads: it may overwrite what all have read.

__device__ __forceinline__ bool last_out(u32* counter) {
  sync_lanes();
  if (threadIdx.x % 32 != 0 || count_up(counter) != WARPS - 1) return false;
  *counter = 0;
  return true;
}

// acc += a [ROWS, DEPTH] · tile, of which the warp's columns: tile [DEPTH, W], or its transpose going back.
// Operands of the next products are loaded while the last ones are multiplied.

struct Operands {
  u32 a[MT][4], b[NT / 2][4];
};

template <bool BACK>
__device__ __forceinline__ void load_operands(Operands& to, const bf16* a, const bf16* tile, int k, const Place& place) {
  const int lane = place.lane;
  a += place.group * SPAN * A_STRIDE;
#pragma unroll
  for (int mi = 0; mi < MT; mi++) load_matrices(to.a[mi], a + (mi * 16 + (lane & 15)) * A_STRIDE + k + (lane >> 4) * 8);
#pragma unroll
  for (int ni = 0; ni < NT / 2; ni++) {
    const int col = place.first_column() + ni * 16;
    if (BACK) load_matrices(to.b[ni], tile + (col + (lane & 7) + (lane >> 4) * 8) * B_STRIDE + k + ((lane >> 3) & 1) * 8);
    else load_transposed(to.b[ni], tile + (k + (lane & 15)) * F_STRIDE + col + (lane >> 4) * 8);
  }
}

template <bool BACK>
__device__ __forceinline__ void multiply(float (&acc)[MT][NT][4], const bf16* a, const bf16* tile, const Place& place) {
  Operands operands[2];
  load_operands<BACK>(operands[0], a, tile, 0, place);
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    Operands& now = operands[k / 16 % 2];
    if (k + 16 < DEPTH) load_operands<BACK>(operands[(k / 16 + 1) % 2], a, tile, k + 16, place);
#pragma unroll
    for (int mi = 0; mi < MT; mi++)
#pragma unroll
      for (int ni = 0; ni < NT; ni++) multiply_add(acc[mi][ni], now.a[mi], now.b[ni / 2][ni % 2 * 2], now.b[ni / 2][ni % 2 * 2 + 1]);
  }
}

// The same for a narrow output [ROWS, N], in parts of 16 × 16 that the warps share: those of the head going forward and
// of the network's input going back.

template <int N>
struct Narrow {
  static const int DOWN = ROWS / 16, SHARES = DOWN * (N / 16), EACH_WARP = (SHARES + WARPS - 1) / WARPS;
  float acc[EACH_WARP][2][4];

  __device__ __forceinline__ Narrow() {
#pragma unroll
    for (int j = 0; j < EACH_WARP; j++)
#pragma unroll
      for (int i = 0; i < 8; i++) acc[j][i / 4][i % 4] = 0.0f;
  }

  template <bool BACK>
  __device__ __forceinline__ void multiply(const bf16* a, const bf16* tile, int lane) {
#pragma unroll
    for (int j = 0; j < EACH_WARP; j++) {
      const int share = threadIdx.x / 32 + j * WARPS, row = share % DOWN * 16, col = share / DOWN * 16;
      if (share >= SHARES) break;
#pragma unroll
      for (int k = 0; k < DEPTH; k += 16) {
        u32 left[4], right[4];
        load_matrices(left, a + (row + (lane & 15)) * A_STRIDE + k + (lane >> 4) * 8);
        if (BACK) load_matrices(right, tile + (col + (lane & 7) + (lane >> 4) * 8) * B_STRIDE + k + ((lane >> 3) & 1) * 8);
        else load_transposed(right, tile + (k + (lane & 15)) * (N + 8) + col + (lane >> 4) * 8);
        multiply_add(acc[j][0], left, right[0], right[1]);
        multiply_add(acc[j][1], left, right[2], right[3]);
      }
    }
  }

  // `write(row, column, two neighbouring numbers)` for each that the thread has.
  template <typename F>
  __device__ __forceinline__ void each(int lane, F write) {
#pragma unroll
    for (int j = 0; j < EACH_WARP; j++) {
      const int share = threadIdx.x / 32 + j * WARPS, row = share % DOWN * 16, col = share / DOWN * 16;
      if (share >= SHARES) break;
#pragma unroll
      for (int ni = 0; ni < 2; ni++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          write(row + lane / 4 + h * 8, col + ni * 8 + lane % 4 * 2, make_float2(acc[j][ni][2 * h], acc[j][ni][2 * h + 1]));
    }
  }
};

// Two sums over each row of the tile [MT][2 rows of the thread]: over its columns, the quad, then all warps.

__device__ __forceinline__ void sum_rows(float (&a)[MT][2], float (&b)[MT][2], float2* sums, const Place& place) {
#pragma unroll
  for (int mi = 0; mi < MT; mi++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
      for (int mask = 1; mask < 4; mask *= 2) {
        a[mi][h] += across(a[mi][h], mask);
        b[mi][h] += across(b[mi][h], mask);
      }
      const int part = place.first_column() / COLS * ROWS;
      if (place.lane % 4 == 0) sums[part + place.row + mi * 16 + h * 8] = make_float2(a[mi][h], b[mi][h]);
    }
  sync_group(place.group, TEAM);
#pragma unroll
  for (int mi = 0; mi < MT; mi++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < ACROSS; w++) {
        const float2 part = sums[w * ROWS + place.row + mi * 16 + h * 8];
        total.x += part.x;
        total.y += part.y;
      }
      a[mi][h] = total.x;
      b[mi][h] = total.y;
    }
}

#ifdef TRUNK_FORWARD

extern "C" __global__ void __launch_bounds__(THREADS, SPAN > 32 ? 1 : 512 / THREADS) trunk_forward(
    const bf16* __restrict__ x,         // [networks, batch, INPUTS]
    const bf16* __restrict__ weights,   // for each network: of the layers [INPUTS + LAYERS · W, W + 8], the last eight
                                        // of a row unused; of the head [2, W, OUT + 8], rounded, and what is left
    const float* __restrict__ vectors,  // [networks, SUMS]: bias, scale and shift of each layer, bias of the head
    float* __restrict__ out             // [networks, batch, OUT]
#if SAVE
    , bf16* __restrict__ normed,        // [networks, 1 + LAYERS, batch, W + 8]: before scale and shift
    float* __restrict__ inverse         // [networks, 1 + LAYERS, batch]: 1 / standard deviation
#endif
#if SAVE == 2
    , bf16* __restrict__ inputs         // [networks, 1 + LAYERS, batch, W]: of the layers after the first and the head
#endif
) {
  SHARED
  bf16* a = (bf16*)shared;
  bf16* n = a + ROWS * A_STRIDE;
  bf16* ring = n + ROWS * F_STRIDE;
  float2* sums = (float2*)(ring + STAGES * TILE);
  u64* arrived = (u64*)(sums + ACROSS * ROWS);  // [STAGES]
  u32* left = (u32*)(arrived + STAGES);         // [STAGES] warps that are done with a tile
  const Place place;
  const int network = blockIdx.y, batch = gridDim.x * ROWS, first = blockIdx.x * ROWS;
  const int of_layers = INPUTS / DEPTH + LAYERS * (W / DEPTH), tiles = of_layers + 2 * (W / DEPTH);
  weights += (size_t)network * (of_layers * F_TILE + 2 * (W / DEPTH) * H_TILE);
  vectors += (size_t)network * SUMS;
  x += ((size_t)network * batch + first) * INPUTS;
  out += ((size_t)network * batch + first) * OUT;
#if SAVE == 2
  inputs += ((size_t)network * (1 + LAYERS) * batch + first) * W;
#endif
#if SAVE
  normed += ((size_t)network * (1 + LAYERS) * batch + first) * F_STRIDE;
  inverse += (size_t)network * (1 + LAYERS) * batch + first;
#endif

  auto fetch = [&](int t) {
    const bool layers = t < of_layers;
    const u32 size = layers ? F_TILE : H_TILE;
    const bf16* from = weights + (layers ? t * F_TILE : of_layers * F_TILE + (t - of_layers) * H_TILE);
    announce(arrived + t % STAGES, 2 * size);
    copy(ring + t % STAGES * TILE, from, 2 * size, arrived + t % STAGES);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) start_barrier(arrived + i), left[i] = 0;
    show_barriers();
    for (int t = 0; t < STAGES && t < tiles; t++) fetch(t);
  }
  for (int i = threadIdx.x; i < ROWS * INPUTS / 8; i += THREADS) {
    const int row = i / (INPUTS / 8), col = i % (INPUTS / 8) * 8;
    *(uint4*)(a + row * A_STRIDE + col) = *(const uint4*)(x + row * INPUTS + col);
  }
  __syncthreads();

  float acc[MT][NT][4];
  u32 skip[MT][NT][2];
  int t = 0;
  for (int layer = 0; layer <= LAYERS; layer++) {
    float2 bias[NT], scale[NT], shift[NT];
#pragma unroll
    for (int ni = 0; ni < NT; ni++) {
      const float* at = vectors + layer * 3 * W + place.column + ni * 8;
      bias[ni] = *(const float2*)at;
      if (NORM) scale[ni] = *(const float2*)(at + W);
      if (NORM) shift[ni] = *(const float2*)(at + 2 * W);
    }
#if SAVE == 2
    if (layer > 0) write_tile(inputs + (size_t)(layer - 1) * batch * W, W, a, A_STRIDE);
#endif
#if SAVE
    if (layer > 0) write_tile(normed + (size_t)(layer - 1) * batch * F_STRIDE, F_STRIDE, n, F_STRIDE);
#endif
    EACH(mi, ni, i) acc[mi][ni][i] = 0.0f;
    const int chunks = layer == 0 ? INPUTS / DEPTH : W / DEPTH;
    for (int c = 0; c < chunks; c++, t++) {
      wait_for(arrived + t % STAGES, t / STAGES);
      multiply<false>(acc, a + c * DEPTH, ring + t % STAGES * TILE, place);
      if (t + STAGES < tiles && last_out(left + t % STAGES)) fetch(t + STAGES);
    }

    EACH(mi, ni, i) acc[mi][ni][i] += i % 2 ? bias[ni].y : bias[ni].x;
    float mean[MT][2], inv[MT][2];
    if (NORM) {
#pragma unroll
      for (int mi = 0; mi < MT; mi++) mean[mi][0] = mean[mi][1] = inv[mi][0] = inv[mi][1] = 0.0f;
      EACH(mi, ni, i) {
        mean[mi][i / 2] += acc[mi][ni][i];
        inv[mi][i / 2] += acc[mi][ni][i] * acc[mi][ni][i];
      }
      sum_rows(mean, inv, sums, place);
#pragma unroll
      for (int mi = 0; mi < MT; mi++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
          mean[mi][h] *= 1.0f / W;
          inv[mi][h] = rsqrtf(fmaxf(inv[mi][h] * (1.0f / W) - mean[mi][h] * mean[mi][h], 0.0f) + EPSILON);
#if SAVE
          if (place.column == 0) inverse[(size_t)layer * batch + place.row + mi * 16 + h * 8] = inv[mi][h];
#endif
        }
    } else {
      sync_group(place.group, TEAM);  // all warps are done with `a`
    }

    EACH_PAIR(mi, ni, h) {
      const int row = place.row + mi * 16 + h * 8, col = place.column + ni * 8;
      float2 u = make_float2(acc[mi][ni][2 * h], acc[mi][ni][2 * h + 1]);
      if (NORM) u = make_float2((u.x - mean[mi][h]) * inv[mi][h], (u.y - mean[mi][h]) * inv[mi][h]);
#if SAVE
      *(u32*)(n + row * F_STRIDE + col) = pack(u.x, u.y);
#endif
      if (NORM) u = make_float2(u.x * scale[ni].x + shift[ni].x, u.y * scale[ni].y + shift[ni].y);
      float2 y = make_float2(u.x * sigmoid(u.x), u.y * sigmoid(u.y));
#if BLOCK
      if (layer > 0 && layer % BLOCK == 0) {
        const float2 before = unpack(skip[mi][ni][h]);
        y.x += before.x;
        y.y += before.y;
      }
      if (layer % BLOCK == 0) skip[mi][ni][h] = pack(y.x, y.y);
#endif
      *(u32*)(a + row * A_STRIDE + col) = pack(y.x, y.y);
    }
    sync_group(place.group, TEAM);
  }
#if SAVE == 2
  write_tile(inputs + (size_t)LAYERS * batch * W, W, a, A_STRIDE);
#endif
#if SAVE
  write_tile(normed + (size_t)LAYERS * batch * F_STRIDE, F_STRIDE, n, F_STRIDE);
#endif

  if (GROUPS > 1) __syncthreads();  // the head is shared by all warps
  Narrow<OUT> head;
  for (int c = 0; c < 2 * (W / DEPTH); c++, t++) {
    wait_for(arrived + t % STAGES, t / STAGES);
    head.multiply<false>(a + c % (W / DEPTH) * DEPTH, ring + t % STAGES * TILE, place.lane);
    if (t + STAGES < tiles && last_out(left + t % STAGES)) fetch(t + STAGES);
  }
  const float* bias = vectors + (1 + LAYERS) * 3 * W;
  head.each(place.lane, [&](int row, int col, float2 y) {
    *(float2*)(out + row * OUT + col) = make_float2(y.x + bias[col], y.y + bias[col + 1]);
  });
}

#endif

#ifdef TRUNK_BACKWARD

extern "C" __global__ void __launch_bounds__(THREADS, SPAN > 32 ? 1 : 512 / THREADS) trunk_backward(
    const float* __restrict__ gradient, // [networks, batch, OUT]: of the output
    const bf16* __restrict__ weights,   // for each network, in the order of use, columns [columns / DEPTH, rows, DEPTH + 8]
                                        // of the weights: of the head, of the layers from the last, of the first if DX
    const float* __restrict__ vectors,  // as in the forward kernel
    const bf16* __restrict__ normed,    // as the forward kernel wrote them
    const float* __restrict__ inverse
#if GRADS
    , bf16* __restrict__ gradients,     // [networks, 1 + LAYERS, batch, W]: of the layers' products
    bf16* __restrict__ rounded,         // [networks, batch, OUT]: `gradient`
    float* __restrict__ sums_out        // [networks, batch / SPAN, SUMS]: parts of the vectors' gradients
#endif
#if DX
    , bf16* __restrict__ dx             // [networks, batch, INPUTS]
#endif
) {
  SHARED
  bf16* a = (bf16*)shared;
  bf16* n = a + ROWS * A_STRIDE;
  bf16* ring = n + ROWS * F_STRIDE;
  float2* sums = (float2*)(ring + STAGES * TILE);
  float* scale = (float*)(sums + ACROSS * ROWS);  // of the layer, then its shift
  float* inv = scale + 2 * W;
  u64* arrived = (u64*)(inv + ROWS);            // [STAGES], and of what a layer needs
  u32* left = (u32*)(arrived + STAGES + 1);     // the same: warps that are done with it
  const Place place;
  const int network = blockIdx.y, batch = gridDim.x * ROWS, first = blockIdx.x * ROWS;
  const int of_layers = OUT / DEPTH + LAYERS * (W / DEPTH), tiles = of_layers + DX * (W / DEPTH);
  weights += (size_t)network * (of_layers * B_TILE + DX * (W / DEPTH) * X_TILE);
  vectors += (size_t)network * SUMS;
  gradient += ((size_t)network * batch + first) * OUT;
  normed += ((size_t)network * (1 + LAYERS) * batch + first) * F_STRIDE;
  inverse += (size_t)network * (1 + LAYERS) * batch + first;
#if GRADS
  gradients += ((size_t)network * (1 + LAYERS) * batch + first) * W;
  rounded += ((size_t)network * batch + first) * OUT;
  sums_out += (((size_t)network * gridDim.x + blockIdx.x) * GROUPS + place.group) * SUMS;
#endif
#if DX
  dx += ((size_t)network * batch + first) * INPUTS;
#endif

  auto fetch = [&](int t) {
    const bool layers = t < of_layers;
    const u32 size = layers ? B_TILE : X_TILE;
    const bf16* from = weights + (layers ? t * B_TILE : of_layers * B_TILE + (t - of_layers) * X_TILE);
    announce(arrived + t % STAGES, 2 * size);
    copy(ring + t % STAGES * TILE, from, 2 * size, arrived + t % STAGES);
  };
  // What a layer's element-wise part needs, while the layer after it is multiplied.
  auto fetch_layer = [&](int layer) {
    announce(arrived + STAGES, 2 * ROWS * F_STRIDE + (NORM ? 8 * W + 4 * ROWS : 0));
    copy(n, normed + (size_t)layer * batch * F_STRIDE, 2 * ROWS * F_STRIDE, arrived + STAGES);
    if (NORM) copy(scale, vectors + (layer * 3 + 1) * W, 8 * W, arrived + STAGES);
    if (NORM) copy(inv, inverse + (size_t)layer * batch, 4 * ROWS, arrived + STAGES);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i <= STAGES; i++) start_barrier(arrived + i), left[i] = 0;
    show_barriers();
    fetch_layer(LAYERS);
    for (int t = 0; t < STAGES && t < tiles; t++) fetch(t);
  }

  // The gradient of the output, rounded.
  for (int i = threadIdx.x; i < ROWS * OUT / 4; i += THREADS) {
    const int row = i / (OUT / 4), col = i % (OUT / 4) * 4;
    const float4 g = *(const float4*)(gradient + row * OUT + col);
    const uint2 packed = make_uint2(pack(g.x, g.y), pack(g.z, g.w));
    *(uint2*)(a + row * A_STRIDE + col) = packed;
#if GRADS
    *(uint2*)(rounded + row * OUT + col) = packed;
#endif
  }
  __syncthreads();
#if GRADS
  // Its sums over rows: a warp has four pairs of columns at a time.
  for (int col = place.first_column() / COLS * 8; col < OUT; col += ACROSS * 8) {
    const int at = col + place.lane % 4 * 2;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int row = 0; row < SPAN; row += 8) {
      const float2 g = unpack(*(const u32*)(a + (place.row + row) * A_STRIDE + at));
      sum.x += g.x;
      sum.y += g.y;
    }
#pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) {
      sum.x += across(sum.x, mask);
      sum.y += across(sum.y, mask);
    }
    if (place.lane < 4) *(float2*)(sums_out + (1 + LAYERS) * 3 * W + at) = sum;
  }
#endif

  float acc[MT][NT][4];
  u32 skip[MT][NT][2];
  int t = 0;
  EACH(mi, ni, i) acc[mi][ni][i] = 0.0f;
  for (int c = 0; c < OUT / DEPTH; c++, t++) {
    wait_for(arrived + t % STAGES, t / STAGES);
    multiply<true>(acc, a + c * DEPTH, ring + t % STAGES * TILE, place);
    if (t + STAGES < tiles && last_out(left + t % STAGES)) fetch(t + STAGES);
  }

  for (int layer = LAYERS; layer >= 0; layer--) {
    wait_for(arrived + STAGES, LAYERS - layer);
#if BLOCK
    if (layer > 0 && layer % BLOCK == 0) EACH_PAIR(mi, ni, h) skip[mi][ni][h] = pack(acc[mi][ni][2 * h], acc[mi][ni][2 * h + 1]);
#endif
    float2 d_bias[NT], d_scale[NT], d_shift[NT];
#pragma unroll
    for (int ni = 0; ni < NT; ni++) d_bias[ni] = d_scale[ni] = d_shift[ni] = make_float2(0.0f, 0.0f);
    float m1[MT][2], m2[MT][2];
#pragma unroll
    for (int mi = 0; mi < MT; mi++) m1[mi][0] = m1[mi][1] = m2[mi][0] = m2[mi][1] = 0.0f;
    u32 saved[MT][NT][2];
    // Through the activation, and through scale and shift.
    EACH_PAIR(mi, ni, h) {
      const int row = place.row + mi * 16 + h * 8, col = place.column + ni * 8;
      saved[mi][ni][h] = *(const u32*)(n + row * F_STRIDE + col);
      const float2 value = unpack(saved[mi][ni][h]);
      float2 u = value, by = make_float2(1.0f, 1.0f);
      if (NORM) {
        by = *(const float2*)(scale + col);
        const float2 shift = *(const float2*)(scale + W + col);
        u = make_float2(value.x * by.x + shift.x, value.y * by.y + shift.y);
      }
      const float2 s = make_float2(sigmoid(u.x), sigmoid(u.y));
      float2 d = make_float2(acc[mi][ni][2 * h] * s.x * (1.0f + u.x * (1.0f - s.x)),
                             acc[mi][ni][2 * h + 1] * s.y * (1.0f + u.y * (1.0f - s.y)));
      if (NORM) {
        d_shift[ni].x += d.x;
        d_shift[ni].y += d.y;
        d_scale[ni].x += d.x * value.x;
        d_scale[ni].y += d.y * value.y;
        d.x *= by.x;
        d.y *= by.y;
        m1[mi][h] += d.x + d.y;
        m2[mi][h] += d.x * value.x + d.y * value.y;
      }
      acc[mi][ni][2 * h] = d.x;
      acc[mi][ni][2 * h + 1] = d.y;
    }
    if (NORM) sum_rows(m1, m2, sums, place);
    else sync_group(place.group, TEAM);  // all warps are done with `a`

    // Through the LayerNorm.
#pragma unroll
    for (int mi = 0; mi < MT; mi++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = place.row + mi * 16 + h * 8;
        const float by = NORM ? inv[row] : 1.0f;
#pragma unroll
        for (int ni = 0; ni < NT; ni++) {
          const int col = place.column + ni * 8;
          float2 d = make_float2(acc[mi][ni][2 * h], acc[mi][ni][2 * h + 1]);
          if (NORM) {
            const float2 value = unpack(saved[mi][ni][h]);
            d.x = by * (d.x - (m1[mi][h] + value.x * m2[mi][h]) * (1.0f / W));
            d.y = by * (d.y - (m1[mi][h] + value.y * m2[mi][h]) * (1.0f / W));
          }
          d_bias[ni].x += d.x;
          d_bias[ni].y += d.y;
          *(u32*)(a + row * A_STRIDE + col) = pack(d.x, d.y);
        }
      }

    if (layer > 0 && last_out(left + STAGES)) fetch_layer(layer - 1);
#if GRADS
    // Gradients of the vectors, summed over the tile's rows.
#pragma unroll
    for (int ni = 0; ni < NT; ni++) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) {
        d_bias[ni].x += across(d_bias[ni].x, mask);
        d_bias[ni].y += across(d_bias[ni].y, mask);
        if (NORM) {
          d_scale[ni].x += across(d_scale[ni].x, mask);
          d_scale[ni].y += across(d_scale[ni].y, mask);
          d_shift[ni].x += across(d_shift[ni].x, mask);
          d_shift[ni].y += across(d_shift[ni].y, mask);
        }
      }
      if (place.lane < 4) {
        float* to = sums_out + layer * 3 * W + place.column + ni * 8;
        *(float2*)to = d_bias[ni];
        *(float2*)(to + W) = d_scale[ni];
        *(float2*)(to + 2 * W) = d_shift[ni];
      }
    }
#endif
    sync_group(place.group, TEAM);
#if GRADS
    write_tile(gradients + (size_t)layer * batch * W, W, a, A_STRIDE);
#endif
    if (layer == 0) break;

    // Through the product with the layer's weights.
    EACH(mi, ni, i) acc[mi][ni][i] = 0.0f;
    for (int c = 0; c < W / DEPTH; c++, t++) {
      wait_for(arrived + t % STAGES, t / STAGES);
      multiply<true>(acc, a + c * DEPTH, ring + t % STAGES * TILE, place);
      if (t + STAGES < tiles && last_out(left + t % STAGES)) fetch(t + STAGES);
    }
#if BLOCK
    if ((layer - 1) % BLOCK == 0) EACH_PAIR(mi, ni, h) {
        const float2 around = unpack(skip[mi][ni][h]);
        acc[mi][ni][2 * h] += around.x;
        acc[mi][ni][2 * h + 1] += around.y;
      }
#endif
  }
#if DX
  if (GROUPS > 1) __syncthreads();
  Narrow<INPUTS> input;
  for (int c = 0; c < W / DEPTH; c++, t++) {
    wait_for(arrived + t % STAGES, t / STAGES);
    input.multiply<true>(a + c * DEPTH, ring + t % STAGES * TILE, place.lane);
    if (t + STAGES < tiles && last_out(left + t % STAGES)) fetch(t + STAGES);
  }
  input.each(place.lane, [&](int row, int col, float2 d) { *(u32*)(dx + row * INPUTS + col) = pack(d.x, d.y); });
#endif
}

#endif

#ifdef TRUNK_WEIGHTS

// Gradients of all weights: a block makes one tile [SIDE, SIDE] of inputsᵀ · gradients over the whole batch, a warp
// SIDE / 2 × 32 of it. The last blocks of a network sum the parts of the vectors' gradients.

#define T_DEPTH 64
#define T_STAGES 3
#define T_STRIDE (SIDE + 8)
#define T_MT (SIDE / 32)      // 16 rows each: a warp has half of the tile's rows
#define T_ACROSS (SIDE / 32)  // and 32 of its columns
#define T_THREADS (32 * 2 * T_ACROSS)
#define SPLIT(n) (((n) + SIDE - 1) / SIDE)

extern "C" __global__ void __launch_bounds__(T_THREADS, 512 / T_THREADS) trunk_weights(
    const bf16* __restrict__ x,          // [networks, BATCH, INPUTS]
    const bf16* __restrict__ inputs,     // [networks, 1 + LAYERS, BATCH, W]
    const bf16* __restrict__ gradients,  // [networks, 1 + LAYERS, BATCH, W]
    const bf16* __restrict__ rounded,    // [networks, BATCH, OUT]
    const float* __restrict__ parts,     // [networks, PARTS, SUMS]
    float* __restrict__ d_layers,        // [networks, INPUTS + LAYERS · W, W]
    float* __restrict__ d_head,          // [networks, W, OUT]
    float* __restrict__ d_vectors        // [networks, SUMS]
) {
  SHARED
  const size_t network = blockIdx.y;
  const int of_first = SPLIT(INPUTS) * SPLIT(W), of_layer = SPLIT(W) * SPLIT(W), of_head = SPLIT(W) * SPLIT(OUT);
  int block = blockIdx.x;
  const bf16 *left, *right;
  float* to;
  int down, across_, columns;  // left is [BATCH, down], right [BATCH, across_]; the tile's place among the columns of tiles
  if (block < of_first) {
    left = x + network * BATCH * INPUTS, right = gradients + network * (1 + LAYERS) * BATCH * W;
    to = d_layers + network * (INPUTS + LAYERS * W) * W;
    down = INPUTS, across_ = W;
  } else if ((block -= of_first) < LAYERS * of_layer) {
    const int layer = block / of_layer;
    block %= of_layer;
    left = inputs + (network * (1 + LAYERS) + layer) * BATCH * W;
    right = gradients + (network * (1 + LAYERS) + layer + 1) * BATCH * W;
    to = d_layers + (network * (INPUTS + LAYERS * W) + INPUTS + layer * W) * W;
    down = W, across_ = W;
  } else if ((block -= LAYERS * of_layer) < of_head) {
    left = inputs + (network * (1 + LAYERS) + LAYERS) * BATCH * W, right = rounded + network * BATCH * OUT;
    to = d_head + network * W * OUT;
    down = W, across_ = OUT;
  } else {
    const int i = (block - of_head) * T_THREADS + threadIdx.x;
    if (i >= SUMS) return;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = 0; part < PARTS; part++) sum += parts[(network * PARTS + part) * SUMS + i];
    d_vectors[network * SUMS + i] = sum;
    return;
  }
  columns = SPLIT(across_);
  const int top = block / columns * SIDE, start = block % columns * SIDE;

  // Columns beyond the end are left as they are in shared memory: they meet no others.
  bf16* ring = (bf16*)shared;
  auto fetch = [&](int chunk) {
    bf16* stage = ring + chunk % T_STAGES * 2 * T_DEPTH * T_STRIDE;
    for (int i = threadIdx.x; i < T_DEPTH * SIDE / 8; i += T_THREADS) {
      const int row = i / (SIDE / 8), col = i % (SIDE / 8) * 8;
      const size_t from = chunk * T_DEPTH + row;
      if (top + col < down) copy_vector(stage + row * T_STRIDE + col, left + from * down + top + col);
      if (start + col < across_) copy_vector(stage + (T_DEPTH + row) * T_STRIDE + col, right + from * across_ + start + col);
    }
  };
  const int chunks = BATCH / T_DEPTH;
#pragma unroll
  for (int c = 0; c < T_STAGES - 1; c++) {
    if (c < chunks) fetch(c);
    end_group();
  }

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = warp / T_ACROSS * (SIDE / 2), col = warp % T_ACROSS * 32;
  float acc[T_MT][4][4];
#pragma unroll
  for (int i = 0; i < 16 * T_MT; i++) acc[i / 16][i / 4 % 4][i % 4] = 0.0f;
  for (int c = 0; c < chunks; c++) {
    wait_for_groups<T_STAGES - 2>();
    __syncthreads();  // the chunk is there for all, and the one before it is done with
    if (c + T_STAGES - 1 < chunks) fetch(c + T_STAGES - 1);
    end_group();
    const bf16* stage = ring + c % T_STAGES * 2 * T_DEPTH * T_STRIDE;
#pragma unroll
    for (int k = 0; k < T_DEPTH; k += 16) {
      u32 a[T_MT][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; i++)
        load_transposed(b[i], stage + (T_DEPTH + k + (lane & 15)) * T_STRIDE + col + i * 16 + (lane >> 4) * 8);
#pragma unroll
      for (int i = 0; i < T_MT; i++)
        load_transposed(a[i], stage + (k + (lane & 7) + (lane >> 4) * 8) * T_STRIDE + row + i * 16 + ((lane >> 3) & 1) * 8);
#pragma unroll
      for (int mi = 0; mi < T_MT; mi++)
#pragma unroll
        for (int ni = 0; ni < 4; ni++) multiply_add(acc[mi][ni], a[mi], b[ni / 2][ni % 2 * 2], b[ni / 2][ni % 2 * 2 + 1]);
    }
  }
#pragma unroll
  for (int mi = 0; mi < T_MT; mi++)
#pragma unroll
    for (int ni = 0; ni < 4; ni++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int i = top + row + mi * 16 + lane / 4 + h * 8, o = start + col + ni * 8 + lane % 4 * 2;
        if (i < down && o < across_) *(float2*)(to + (size_t)i * across_ + o) = make_float2(acc[mi][ni][2 * h], acc[mi][ni][2 * h + 1]);
      }
}

#endif
