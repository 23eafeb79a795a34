// The hidden layers of an MLP in one kernel each way: a thread block takes ROWS rows of the batch through all layers.
//
// Activations stay in shared memory and registers; weights stream from L2 through a ring of STAGES tiles, each one bulk
// copy (Hopper and later). The grid is (batch / ROWS, networks). Products have bfloat16 operands and float32 sums.
//
// Set by the compiler's command line:
//   W        width of the layers, a multiple of 32, above 512 of 64
//   INPUTS   width of the network's input, padded to a multiple of 64
//   LAYERS   layers after the first
//   ROWS     rows of a block's tile
//   SPAN     rows of them that one warp computes, a multiple of 16
//   DEPTH    of the reduction in one tile of weights
//   STAGES   tiles of weights in flight
//   NORM     1: LayerNorm before the activation
//   BLOCK    layers that a skip connection goes around; 0: none
//   SAVE     1: the forward kernel writes what the backward kernel needs
//   TRUNK_FORWARD, TRUNK_BACKWARD   which of the two is compiled
//
// A warp computes SPAN × COLS of each layer's output, held as the accumulators of mma.m16n8k16: thread `lane` has rows
// lane / 4 and lane / 4 + 8 of each 16 and columns 2 (lane % 4), 2 (lane % 4) + 1 of each 8.

#define COLS (W <= 512 ? 32 : 64)
#define ACROSS (W / COLS)     // warps side by side
#define GROUPS (ROWS / SPAN)  // of warps, one below the other
#define THREADS (32 * ACROSS * GROUPS)
#define MT (SPAN / 16)
#define NT (COLS / 8)
#define A_COLS (INPUTS > W ? INPUTS : W)
#define A_STRIDE (A_COLS + 8)  // eight more elements: no bank conflicts
#define F_STRIDE (W + 8)  // of tiles of weights going forward, and of rows that wait to be written or read
#define B_STRIDE (DEPTH + 8)
#define F_TILE (DEPTH * F_STRIDE)
#define B_TILE (W * B_STRIDE)
#define TILE (F_TILE > B_TILE ? F_TILE : B_TILE)
#define EPSILON 1e-6f
#define FENCED (W > 512)  // shallow tiles of weights: reads outlast the barrier after them
#define EACH(mi, ni, i) \
  _Pragma("unroll") for (int mi = 0; mi < MT; mi++) _Pragma("unroll") for (int ni = 0; ni < NT; ni++) \
      _Pragma("unroll") for (int i = 0; i < 4; i++)
#define EACH_PAIR(mi, ni, h) \
  _Pragma("unroll") for (int mi = 0; mi < MT; mi++) _Pragma("unroll") for (int ni = 0; ni < NT; ni++) \
      _Pragma("unroll") for (int h = 0; h < 2; h++)

#include "copies.cuh"

#ifndef EMULATED  // the tests have these for a CPU

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

// Before a barrier: bulk copies after it overwrite nothing that this thread is still reading. The barrier alone does not
// see to that: products move past it, and with them the wait for what ldmatrix loads.
__device__ __forceinline__ void end_reads() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

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

// Rows of W elements from shared memory to a row-major array, 16 bytes at a time.

__device__ __forceinline__ void write_tile(bf16* to, int to_stride, const bf16* tile, int stride) {
  for (int i = threadIdx.x; i < ROWS * W / 8; i += THREADS) {
    const int row = i / (W / 8), col = i % (W / 8) * 8;
    *(uint4*)(to + row * to_stride + col) = *(const uint4*)(tile + row * stride + col);
  }
}

// acc += a [ROWS, DEPTH] · tile, of which the warp's columns: tile [DEPTH, W], or its transpose going back.
// Operands of the next products are loaded while the last ones are multiplied.

struct Operands {
  u32 a[MT][4], b[NT / 2][4];
};

template <bool BACK>
__device__ __forceinline__ void load_operands(Operands& to, const bf16* a, const bf16* tile, int k, const Place& place) {
  const int stride = BACK ? F_STRIDE : A_STRIDE, lane = place.lane;
  a += place.group * SPAN * stride;
#pragma unroll
  for (int mi = 0; mi < MT; mi++) load_matrices(to.a[mi], a + (mi * 16 + (lane & 15)) * stride + k + (lane >> 4) * 8);
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
  __syncthreads();
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

extern "C" __global__ void __launch_bounds__(THREADS) trunk_forward(
    const bf16* __restrict__ x,         // [networks, batch, INPUTS]
    const bf16* __restrict__ weights,   // [networks, INPUTS + LAYERS · W, W + 8], the last eight of a row unused
    const float* __restrict__ vectors,  // [networks, 1 + LAYERS, 3, W]: bias, scale and shift of the LayerNorm
    bf16* __restrict__ out              // [networks, batch, W]
#if SAVE
    , bf16* __restrict__ inputs,        // [networks, LAYERS, batch, W]: of the layers after the first
    bf16* __restrict__ normed,          // [networks, 1 + LAYERS, batch, W + 8]: before scale and shift
    float* __restrict__ inverse         // [networks, 1 + LAYERS, batch]: 1 / standard deviation
#endif
) {
  SHARED
  bf16* a = (bf16*)shared;
  bf16* n = a + ROWS * A_STRIDE;
  bf16* ring = n + ROWS * F_STRIDE;
  float2* sums = (float2*)(ring + STAGES * TILE);
  u64* arrived = (u64*)(sums + ACROSS * ROWS);  // [STAGES], and of the input
  const Place place;
  const int network = blockIdx.y, batch = gridDim.x * ROWS, first = blockIdx.x * ROWS;
  const int tiles = INPUTS / DEPTH + LAYERS * (W / DEPTH);
  weights += (size_t)network * (INPUTS + LAYERS * W) * F_STRIDE;
  vectors += (size_t)network * (1 + LAYERS) * 3 * W;
  x += ((size_t)network * batch + first) * INPUTS;
  out += ((size_t)network * batch + first) * W;
#if SAVE
  inputs += ((size_t)network * LAYERS * batch + first) * W;
  normed += ((size_t)network * (1 + LAYERS) * batch + first) * F_STRIDE;
  inverse += (size_t)network * (1 + LAYERS) * batch + first;
#endif

  auto fetch = [&](int t) {
    announce(arrived + t % STAGES, 2 * F_TILE);
    copy(ring + t % STAGES * TILE, weights + (size_t)t * F_TILE, 2 * F_TILE, arrived + t % STAGES);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i <= STAGES; i++) start_barrier(arrived + i);
    show_barriers();
    announce(arrived + STAGES, 2 * ROWS * INPUTS);
    for (int row = 0; row < ROWS; row++) copy(a + row * A_STRIDE, x + row * INPUTS, 2 * INPUTS, arrived + STAGES);
    for (int t = 0; t < STAGES && t < tiles; t++) fetch(t);
  }
  __syncthreads();
  wait_for(arrived + STAGES, 0);

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
#if SAVE
    if (layer > 0) {
      write_tile(inputs + (size_t)(layer - 1) * batch * W, W, a, A_STRIDE);
      write_tile(normed + (size_t)(layer - 1) * batch * F_STRIDE, F_STRIDE, n, F_STRIDE);
    }
#endif
    EACH(mi, ni, i) acc[mi][ni][i] = 0.0f;
    const int chunks = layer == 0 ? INPUTS / DEPTH : W / DEPTH;
    for (int c = 0; c < chunks; c++, t++) {
      wait_for(arrived + t % STAGES, t / STAGES);
      multiply<false>(acc, a + c * DEPTH, ring + t % STAGES * TILE, place);
      if (FENCED) end_reads();
      __syncthreads();  // all warps are done with the tile, and after the last with `a`
      if (threadIdx.x == 0 && t + STAGES < tiles) fetch(t + STAGES);
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
    __syncthreads();
  }
  write_tile(out, W, a, A_STRIDE);
#if SAVE
  write_tile(normed + (size_t)LAYERS * batch * F_STRIDE, F_STRIDE, n, F_STRIDE);
#endif
}

#endif

#ifdef TRUNK_BACKWARD

extern "C" __global__ void __launch_bounds__(THREADS) trunk_backward(
    const bf16* __restrict__ gradient,  // [networks, batch, W]: of the output
    const bf16* __restrict__ weights,   // [networks, LAYERS, W / DEPTH, W, DEPTH + 8]: columns of the layers' weights
    const float* __restrict__ vectors,  // as in the forward kernel
    const bf16* __restrict__ normed,    // as the forward kernel wrote them
    const float* __restrict__ inverse,
    bf16* __restrict__ first_gradient,  // [networks, batch, W]: of the first layer's products
    bf16* __restrict__ gradients,       // [networks, LAYERS, batch, W]: of the other layers' products
    float* __restrict__ sums_out        // [networks, batch / SPAN, 1 + LAYERS, 3, W]: parts of the vectors' gradients
) {
  SHARED
  bf16* a = (bf16*)shared;
  bf16* n = a + ROWS * A_STRIDE;
  bf16* ring = n + ROWS * F_STRIDE;
  float2* sums = (float2*)(ring + STAGES * TILE);
  float* scale = (float*)(sums + ACROSS * ROWS);  // of the layer, then its shift
  float* inv = scale + 2 * W;
  u64* arrived = (u64*)(inv + ROWS);  // [STAGES], and of what a layer needs
  const Place place;
  const int network = blockIdx.y, batch = gridDim.x * ROWS, first = blockIdx.x * ROWS;
  const int tiles = LAYERS * (W / DEPTH);
  weights += (size_t)network * tiles * B_TILE;
  vectors += (size_t)network * (1 + LAYERS) * 3 * W;
  gradient += ((size_t)network * batch + first) * W;
  normed += ((size_t)network * (1 + LAYERS) * batch + first) * F_STRIDE;
  inverse += (size_t)network * (1 + LAYERS) * batch + first;
  first_gradient += ((size_t)network * batch + first) * W;
  gradients += ((size_t)network * LAYERS * batch + first) * W;
  sums_out += (((size_t)network * gridDim.x + blockIdx.x) * GROUPS + place.group) * (1 + LAYERS) * 3 * W;

  // Tile t: of layer LAYERS − t / (W / DEPTH), its columns t % (W / DEPTH) · DEPTH and on.
  auto fetch = [&](int t) {
    const int tile = (LAYERS - 1 - t / (W / DEPTH)) * (W / DEPTH) + t % (W / DEPTH);
    announce(arrived + t % STAGES, 2 * B_TILE);
    copy(ring + t % STAGES * TILE, weights + (size_t)tile * B_TILE, 2 * B_TILE, arrived + t % STAGES);
  };
  // What a layer's element-wise part needs, while the layer after it is multiplied.
  auto fetch_layer = [&](int layer, u32 more) {
    announce(arrived + STAGES, 2 * ROWS * F_STRIDE + (NORM ? 8 * W + 4 * ROWS : 0) + more);
    copy(n, normed + (size_t)layer * batch * F_STRIDE, 2 * ROWS * F_STRIDE, arrived + STAGES);
    if (NORM) copy(scale, vectors + (layer * 3 + 1) * W, 8 * W, arrived + STAGES);
    if (NORM) copy(inv, inverse + (size_t)layer * batch, 4 * ROWS, arrived + STAGES);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i <= STAGES; i++) start_barrier(arrived + i);
    show_barriers();
    fetch_layer(LAYERS, 2 * ROWS * W);
    for (int row = 0; row < ROWS; row++) copy(a + row * F_STRIDE, gradient + row * W, 2 * W, arrived + STAGES);
    for (int t = 0; t < STAGES && t < tiles; t++) fetch(t);
  }
  __syncthreads();
  wait_for(arrived + STAGES, 0);

  float acc[MT][NT][4];
  u32 skip[MT][NT][2];
  EACH_PAIR(mi, ni, h) {
    const int row = place.row + mi * 16 + h * 8, col = place.column + ni * 8;
    const float2 g = unpack(*(const u32*)(a + row * F_STRIDE + col));
    acc[mi][ni][2 * h] = g.x;
    acc[mi][ni][2 * h + 1] = g.y;
  }

  int t = 0;
  for (int layer = LAYERS; layer >= 0; layer--) {
    if (layer < LAYERS) wait_for(arrived + STAGES, LAYERS - layer);
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
    else if (layer == LAYERS) __syncthreads();  // all warps have read the gradient

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
          *(u32*)(a + row * F_STRIDE + col) = pack(d.x, d.y);
        }
      }

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
    if (layer == 0) break;

    // Through the product with the layer's weights.
    EACH(mi, ni, i) acc[mi][ni][i] = 0.0f;
    if (FENCED) end_reads();
    __syncthreads();
    if (threadIdx.x == 0) fetch_layer(layer - 1, 0);
    write_tile(gradients + (size_t)(layer - 1) * batch * W, W, a, F_STRIDE);
    for (int c = 0; c < W / DEPTH; c++, t++) {
      wait_for(arrived + t % STAGES, t / STAGES);
      multiply<true>(acc, a + c * DEPTH, ring + t % STAGES * TILE, place);
      if (FENCED) end_reads();
      __syncthreads();
      if (threadIdx.x == 0 && t + STAGES < tiles) fetch(t + STAGES);
    }
#if BLOCK
    if ((layer - 1) % BLOCK == 0) EACH_PAIR(mi, ni, h) {
        const float2 around = unpack(skip[mi][ni][h]);
        acc[mi][ni][2 * h] += around.x;
        acc[mi][ni][2 * h + 1] += around.y;
      }
#endif
  }
  __syncthreads();
  write_tile(first_gradient, W, a, F_STRIDE);
}

#endif
