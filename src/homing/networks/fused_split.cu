// Whole networks by the matrix units of Hopper cards, their columns split: forward and backward. What fused.cu makes of
// the same arrays with a warpgroup for 64 rows, SPLIT warpgroups make here.
//
// A tile of 64 rows of the batch goes through all layers. Each of its warpgroups has its columns of the accumulators; what they
// normalise and activate is the left operand of the next product, in shared memory for all of them. Sums over a row are exchanged
// there too. Weights stream from L2 through a ring of tiles that all warpgroups of a block share; threads of a warpgroup of its own
// copy them, four where many copies are small. What the gradients of weights need leaves as bulk copies of left operands.
//
// A layer of a tile: products; sums of rows are shown; barrier (nobody reads the left operand any more); elements, the next left
// operand; barrier.
//
// Set by the compiler's command line, beside what fused.cu says:
//   GROUPS    tiles of a block: 1 or 2
//   SPLIT     warpgroups of a tile in a block: 1, 2 or 4, at most 4 of a block
//   CLUSTER   blocks that share a tile: 1, or 2 or 4 where GROUPS is 1. Each has its columns of the accumulators, copies the weights
//             of these alone, and sends the others what it made of the next left operand
//   CHUNK     steps of a reduction in a tile of weights: 32 or 64
//   TURNS     1: a tile has the matrix units while the other one computes elements

#define ROWS (64 * GROUPS)
#define TILE_THREADS (128 * SPLIT)
#define COMPUTING (TILE_THREADS * GROUPS)  // threads that compute; a warpgroup after them copies
#define THREADS (COMPUTING + 128)
#define BLOCK_COLS (W / CLUSTER)           // columns of a block
#define COLS (BLOCK_COLS / SPLIT)          // columns of a warpgroup
#define SLICES (CLUSTER * SPLIT)           // warpgroups of a tile
#define NJ (W / 8)                         // blocks across a layer
#define NK (W / 16)
#define OWN (COLS / 16)                    // pairs of blocks across them
#define WIDEST (OUTPUTS > W ? OUTPUTS : W)
#define TILE (CHUNK * WIDEST)              // elements of a stage
#define EPSILON 1e-6f

#if GROUPS * SPLIT == 4
#define TAKEN "112"
#endif
#include "hopper.cuh"

typedef TileRing<STAGES, TILE, GROUPS * SPLIT> Ring;

static_assert(CLUSTER == 1 || GROUPS == 1, "a cluster shares one tile");
static_assert(!TURNS || (GROUPS == 2 && W <= STAGES * CHUNK), "a turn's tiles, which both release, must fit into the ring");

// A block whose shared memory the others still write to, or read, must not end.
#if CLUSTER > 1
#define IN_CLUSTER __cluster_dims__(CLUSTER, 1, 1)
__device__ __forceinline__ void end_cluster() { sync_warp(), sync_cluster(); }
#else
#define IN_CLUSTER
__device__ __forceinline__ void end_cluster() {}
#endif

// What a warpgroup has of its tile: columns `slice` · COLS and on of 64 rows.

struct Share {
  int tile, part, rank, slice, thread, warp, lane, row;  // `thread`: of the tile's in this block; `row`: the first of its two
  __device__ __forceinline__ Share() {
    tile = uniform(threadIdx.x / TILE_THREADS), part = uniform(threadIdx.x % TILE_THREADS / 128), thread = threadIdx.x % TILE_THREADS;
    rank = blockIdx.x % CLUSTER, slice = rank * SPLIT + part;
    warp = thread % 128 / 32, lane = thread % 32, row = warp * 16 + lane / 4;
  }
  __device__ __forceinline__ void meet() const { sync_threads(3 + tile, TILE_THREADS); }
  __device__ __forceinline__ void wait_turn() const {
    if (TURNS) sync_threads(1 + tile, 2 * TILE_THREADS);
    else meet();
  }
  __device__ __forceinline__ void pass_turn() const {
    if (TURNS) show_arrival(2 - tile, 2 * TILE_THREADS);
  }
  // Of a left operand, where this lane's row of four blocks is: two below each other, then the next two.
  __device__ __forceinline__ int own_row() const {
    return ((warp * 2 + lane / 8 % 2) * NJ + slice * (COLS / 8) + lane / 16) * 64 + lane % 8 * 8;
  }
  // Adds what all warpgroups of the tile have, two numbers for each row. After it none of them reads the left operand any more.
  __device__ __forceinline__ void add_slices(float2* sums, float (&x)[2], float (&y)[2], u64* full, int phase) const {
    if (CLUSTER > 1) sync_warp();  // its copies of the left operand are over
    if (lane % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float2* to = sums + slice * 64 + row + h * 8;
        if (CLUSTER == 1) *to = make_float2(x[h], y[h]);
        else
#pragma unroll
          for (int peer = 0; peer < CLUSTER; peer++) send(to, make_float2(x[h], y[h]), full, peer);
      }
    }
    if (CLUSTER > 1 && thread == 0) announce(full, SLICES * 512);
    meet();
    if (CLUSTER > 1) wait_for_peers(full, phase);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      x[h] = y[h] = 0.0f;
#pragma unroll
      for (int i = 0; i < SLICES; i++) {
        const float2 sum = sums[i * 64 + row + h * 8];
        x[h] += sum.x, y[h] += sum.y;
      }
    }
  }
  // In a cluster each warp sends its part of the left operand to the other blocks, and keeps it, as soon as it is there.
  __device__ __forceinline__ void send_left(bf16* left, u64* full, bf16* to) const {
    if (CLUSTER == 1) return;
    if (thread == 0) announce(full, (CLUSTER - 1) * 128 * BLOCK_COLS);
    sync_warp();
    if (lane > 0) return;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int at = ((warp * 2 + h) * NJ + slice * (COLS / 8)) * 64;
#pragma unroll
      for (int i = 1; i < CLUSTER; i++) copy_to(left + at, left + at, 16 * COLS, full, (rank + i) % CLUSTER);
      if (to) store(to + at, left + at, 16 * COLS);
    }
  }
  __device__ __forceinline__ void wait_left(u64* full, int phase) const {
    if (CLUSTER > 1) wait_for_peers(full, phase);
  }
  // A left operand of `wide` columns to a matrix in blocks. Blocks of a cluster have some of its rows each.
  __device__ __forceinline__ void keep(bf16* to, int stride, const bf16* left, int wide) const {
    if (CLUSTER == 1 && stride == wide) {
      if (thread == 0) store(to, left, 128 * wide);
    } else if (thread < 8 && thread % CLUSTER == rank) store(to + thread * 8 * stride, left + thread * 8 * wide, 16 * wide);
  }
  __device__ __forceinline__ void wait_kept() const {
    if (lane < 8) wait_stores_read();
  }
};

// acc += left operand of WIDE columns · the next tiles of weights. BACK: with the transposed, whose tiles hold W rows by CHUNK
// columns of the weights, of which a block has its own; otherwise CHUNK rows by COLUMNS columns. The last products are still under way.

template <int M, bool BACK, int WIDE, int COLUMNS>
__device__ __forceinline__ void multiply_left(float (&acc)[M / 2], const bf16* left, const Share& share, const Ring& ring, int& t) {
  const Matrix a = matrix(left, BLOCK_BYTES, WIDE / 8 * BLOCK_BYTES);
#pragma unroll
  for (int c = 0; c < WIDE / CHUNK; c++, t++) {
    ring.wait_full(t);
    const bf16* tile = ring[t] + share.part * M * (BACK ? CHUNK : 8);
    const Matrix b = BACK ? matrix(tile, BLOCK_BYTES, CHUNK / 8 * BLOCK_BYTES) : matrix(tile, COLUMNS / 8 * BLOCK_BYTES, BLOCK_BYTES);
    if (c == 0 && !BACK) settle(acc);
    start_products();
#pragma unroll
    for (int k = 0; k < CHUNK / 16; k++)
      multiply<BACK>(acc, moved(a, (c * CHUNK / 16 + k) * 128), moved(b, k * (BACK ? 128 : 16 * COLUMNS)));
    end_products();
    if (c > 0) wait_products<1>(), ring.release(t - 1);
  }
}
__device__ __forceinline__ void finish_products(const Ring& ring, int t) {
  wait_products<0>();
  ring.release(t - 1);
}

// A thread's eight numbers of a pair of blocks.
__device__ __forceinline__ uint4 packed(const float* x) {
  return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
}
__device__ __forceinline__ void add_words(float* x, uint4 four) {
  const u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int i = 0; i < 4; i++) x[2 * i] += unpack(words[i]).x, x[2 * i + 1] += unpack(words[i]).y;
}

// What skips layers: in registers where there are enough.
#if !BLOCK
#elif GROUPS == 1
#define SKIP_ROOM uint4 skip[OWN];
#define SKIP(k) skip[k]
#else
#define SKIP_ROOM uint4* skip = (uint4*)(skips + ((size_t)network * batch + first) * (W / 2)) + share.thread;
#define SKIP(k) skip[(k) * TILE_THREADS]
#endif

#ifdef FUSED_FORWARD

extern "C" __global__ void IN_CLUSTER __launch_bounds__(THREADS, 1) fused_forward(
    const bf16* __restrict__ x,         // [networks, batch, INPUTS]
    const bf16* __restrict__ weights,   // as packed
    const bf16* __restrict__ heads,     // as packed
    const float* __restrict__ vectors,  // [networks, 1 + LAYERS, 3, W]: bias, and half of the scale and shift of the LayerNorm
    const float* __restrict__ bias,     // [networks, OUTPUT]: of the head
    float* __restrict__ out             // [networks, batch, OUTPUT]
#if SAVE
    , bf16* __restrict__ normed         // [networks, 1 + LAYERS, batch / 16, W / 16, 32 lanes, 8]: before scale and shift, as operands
    , float* __restrict__ inverse       // [networks, 1 + LAYERS, batch]: 1 / standard deviation
#endif
#if SAVE == 2
    , bf16* __restrict__ inputs         // [networks, batch, INPUTS], in blocks
    , bf16* __restrict__ activations    // [networks, 1 + LAYERS, batch, W], in blocks
#endif
#if BLOCK && GROUPS == 2
    , u32* __restrict__ skips           // [networks, batch, W / 2]: room for what skips layers
#endif
) {
  SHARED
  bf16* tiles = (bf16*)shared;
  bf16* left = tiles + STAGES * TILE;              // [GROUPS, 64 · W]
  float* numbers = (float*)(left + GROUPS * 64 * W);  // [2, 3, W]: vectors of a layer, and of the next
  float2* sums = (float2*)(numbers + 6 * W);          // [GROUPS, SLICES, 64]
  u64* barriers = (u64*)(sums + GROUPS * SLICES * 64);
  const Ring ring = {tiles, barriers, barriers + STAGES};
  u64 *vectors_full = barriers + 2 * STAGES, *vectors_empty = vectors_full + 2;
  u64 *sums_full = vectors_empty + 2, *left_full = sums_full + 1;  // of what other blocks send
  const Share share;
  const int network = blockIdx.y, batch = gridDim.x / CLUSTER * ROWS, first = blockIdx.x / CLUSTER * ROWS + share.tile * 64;
  if (threadIdx.x == 0) {
    ring.start();
    for (int i = 0; i < 2; i++) start_barrier(vectors_full + i, 1), start_barrier(vectors_empty + i, GROUPS);
    if (CLUSTER > 1) start_barrier(sums_full, 1), start_barrier(left_full, 1);
    show_barriers();
  }
  if (CLUSTER > 1) sync_cluster();
  else __syncthreads();

  if (threadIdx.x >= COMPUTING) {
    give_registers();
    const int turn = uniform(share.warp);  // of four threads that copy
    if (share.lane == 0 && (CLUSTER > 1 || turn == 0)) {
      weights += (size_t)network * (INPUTS + LAYERS * W) * W;
      heads += (size_t)network * 2 * W * OUTPUTS;
      vectors += (size_t)network * (1 + LAYERS) * 3 * W;
      const bf16* from = weights;
      int t = 0;
      for (int layer = 0; layer <= LAYERS + 1; layer++) {
        if (layer > LAYERS) from = heads;
        else if (turn == 0) {
          if (layer >= 2) wait_for(vectors_empty + layer % 2, layer / 2 - 1);
          announce(vectors_full + layer % 2, 12 * W);
          copy(numbers + layer % 2 * 3 * W, vectors + layer * 3 * W, 12 * W, vectors_full + layer % 2);
        }
        const int count = layer == 0 ? INPUTS / CHUNK : layer <= LAYERS ? W / CHUNK : 2 * (W / CHUNK), wide = layer <= LAYERS ? W : OUTPUTS;
        const int own = wide / CLUSTER * 8;  // of eight rows
        for (int c = 0; c < count; c++, t++) {
          ring.wait_empty(t);
          if (turn == 0) announce(ring.full + t % STAGES, CHUNK / 4 * own);
          if (CLUSTER == 1) copy(ring[t], from, CHUNK / 4 * own, ring.full + t % STAGES);
          else
#pragma unroll
            for (int i = 0; i < CHUNK / 32; i++) {
              const int rows = turn * (CHUNK / 32) + i;
              copy(ring[t] + rows * own, from + rows * wide * 8 + share.rank * own, 2 * own, ring.full + t % STAGES);
            }
          from += CHUNK * wide;
        }
      }
    }
    return end_cluster();
  }

  take_registers();
  float acc[COLS / 2];
  left += share.tile * 64 * W, sums += share.tile * SLICES * 64;
  x += ((size_t)network * batch + first) * INPUTS;
  bf16* own = left + share.own_row();
#if BLOCK
  SKIP_ROOM
#endif
#if SAVE
  uint4* kept = (uint4*)(normed + ((size_t)network * (1 + LAYERS) * batch + first) * W) + (share.warp * NK + share.slice * OWN) * 32 + share.lane;
  inverse += (size_t)network * (1 + LAYERS) * batch + first + share.row;
#endif
#if SAVE == 2
  inputs += ((size_t)network * batch + first) * INPUTS;
  activations += ((size_t)network * (1 + LAYERS) * batch + first) * W;
#endif
  if (share.tile == 1) share.pass_turn();

  // Columns c and on of the input are the left operand.
  auto enter = [&](int c, int wide) {
    if (c > 0) share.wait_kept(), share.meet();
#pragma unroll 4
    for (int i = share.thread; i < 8 * wide; i += TILE_THREADS) {
      const int block = i / 8, row = block / (wide / 8) * 8 + i % 8;
      put(left + i * 8, *(const uint4*)(x + row * INPUTS + c + block % (wide / 8) * 8));
    }
    show_stores();
    share.meet();
#if SAVE == 2
    share.keep(inputs + c * 8, INPUTS, left, wide);
#endif
  };

  int t = 0;
  for (int layer = 0; layer <= LAYERS; layer++) {
    // The accumulators begin with the bias.
    wait_for(vectors_full + layer % 2, layer / 2);
    const float* by = numbers + layer % 2 * 3 * W + share.slice * COLS + share.lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
      const float2 b = *(const float2*)(by + j * 8);
      acc[4 * j] = acc[4 * j + 2] = b.x, acc[4 * j + 1] = acc[4 * j + 3] = b.y;
    }
    if (layer == 0) {
      for (int c = 0; c + W <= INPUTS; c += W) {  // as many columns as the operand has room for
        enter(c, W);
        multiply_left<COLS, false, W, BLOCK_COLS>(acc, left, share, ring, t);
        finish_products(ring, t);
      }
      if (INPUTS % W) {
        enter(INPUTS / W * W, INPUTS % W);
        multiply_left<COLS, false, INPUTS % W, BLOCK_COLS>(acc, left, share, ring, t);
        finish_products(ring, t);
      }
    } else {
      share.wait_turn();
      if (share.thread == 0) arrive(vectors_empty + (layer - 1) % 2);
#if SAVE == 2
      if (CLUSTER == 1) share.keep(activations, W, left, W);
      activations += batch * W;
#endif
      share.wait_left(left_full, layer - 1);
      multiply_left<COLS, false, W, BLOCK_COLS>(acc, left, share, ring, t);
      if (layer < LAYERS || share.tile == 0) share.pass_turn();
      finish_products(ring, t);
    }

    float mean[2] = {0.0f, 0.0f}, inv[2] = {0.0f, 0.0f};
    if (NORM) {
#pragma unroll
      for (int j = 0; j < COLS / 4; j++) {
        const float* z = acc + 2 * j;
        mean[j % 2] += z[0] + z[1], inv[j % 2] = z[0] * z[0] + (z[1] * z[1] + inv[j % 2]);
      }
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int mask = 1; mask < 4; mask *= 2) mean[h] += across(mean[h], mask), inv[h] += across(inv[h], mask);
    }
#if SAVE == 2
    share.wait_kept();
#endif
    share.add_slices(sums, mean, inv, sums_full, layer);
    if (NORM) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        mean[h] *= 1.0f / W;
        inv[h] = rsqrtf(fmaxf(inv[h] * (1.0f / W) - mean[h] * mean[h], 0.0f) + EPSILON);
        mean[h] *= -inv[h];
#if SAVE
        if (share.slice == 0 && share.lane % 4 == 0) inverse[h * 8] = inv[h];
#endif
      }
    }
#pragma unroll
    for (int k = 0; k < OWN; k++) {
      u32 words[4];
#pragma unroll
      for (int p = 0; p < 2; p++) {
        const int j = 2 * k + p;
        float2 s = make_float2(0.5f, 0.5f), b = make_float2(0.0f, 0.0f);
        if (NORM) s = *(const float2*)(by + W + j * 8), b = *(const float2*)(by + 2 * W + j * 8);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float* z = acc + 4 * j + 2 * h;
          if (NORM) z[0] = z[0] * inv[h] + mean[h], z[1] = z[1] * inv[h] + mean[h];
#if SAVE
          words[2 * p + h] = pack(z[0], z[1]);
#endif
          // swish(u) = u σ(u) = h (1 + tanh h) with h = u / 2
          const float2 u = make_float2(z[0] * s.x + b.x, z[1] * s.y + b.y);
          z[0] = u.x * tanh_of(u.x) + u.x, z[1] = u.y * tanh_of(u.y) + u.y;
        }
      }
#if SAVE
      kept[k * 32] = make_uint4(words[0], words[1], words[2], words[3]);
#endif
#if BLOCK
      if (layer % BLOCK == 0) {
        if (layer > 0) add_words(acc + 8 * k, SKIP(k));
        SKIP(k) = packed(acc + 8 * k);
      }
#endif
      store_matrices(own + k * 128, packed(acc + 8 * k));
    }
    show_stores();
#if SAVE == 2
    share.send_left(left, left_full, activations);
#else
    share.send_left(left, left_full, 0);
#endif
#if SAVE
    kept += batch * (W / 8), inverse += batch;
#endif
  }

  // The head.
  constexpr int M = OUTPUTS / SLICES;
  float made[M / 2];
  bias += network * OUTPUT;
  const int column = share.slice * M + share.lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < M / 2; i++) {
    const int col = column + i / 4 * 8 + i % 2;
    made[i] = col < OUTPUT ? bias[col] : 0.0f;
  }
  share.meet();
#if SAVE == 2
  if (CLUSTER == 1) share.keep(activations, W, left, W);
#endif
  share.wait_left(left_full, LAYERS);
  for (int part = 0; part < 2; part++) {
    multiply_left<M, false, W, OUTPUTS / CLUSTER>(made, left, share, ring, t);
    finish_products(ring, t);
  }
  out += ((size_t)network * batch + first + share.row) * OUTPUT;
#pragma unroll
  for (int i = 0; i < M / 2; i++) {
    const int col = column + i / 4 * 8 + i % 2;
    if (col < OUTPUT) out[i / 2 % 2 * 8 * OUTPUT + col] = made[i];
  }
#if SAVE == 2
  if (share.lane < 8) wait_stores();
#endif
  end_cluster();
}

#endif

#ifdef FUSED_BACKWARD

extern "C" __global__ void IN_CLUSTER __launch_bounds__(THREADS, 1) fused_backward(
    const float* __restrict__ gradient,  // [networks, batch, OUTPUT]: of the output
    const bf16* __restrict__ weights,    // as packed
    const bf16* __restrict__ heads,      // as packed; the first of the two is used
    const float* __restrict__ vectors,   // as in the forward kernel
    const bf16* __restrict__ normed,     // as the forward kernel wrote them
    const float* __restrict__ inverse
#if BLOCK && GROUPS == 2
    , u32* __restrict__ skips            // [networks, batch, W / 2]: room for gradients that skip layers
#endif
#if D_INPUT
    , float* __restrict__ d_input        // [networks, batch, INPUT]
#endif
#if WEIGHTS
    , bf16* __restrict__ d_output        // [networks, batch, OUTPUTS], in blocks: the output's gradient
    , bf16* __restrict__ d_products      // [networks, 1 + LAYERS, batch, W], in blocks: gradients of the layers' products
    , float* __restrict__ parts          // [networks, batch / 64, 1 + LAYERS, 2, W]: of the gradients of scale and shift
#endif
) {
  SHARED
  bf16* tiles = (bf16*)shared;
  bf16* left = tiles + STAGES * TILE;                 // [GROUPS, 64 · WIDEST]
  bf16* saved = left + GROUPS * 64 * WIDEST;          // [GROUPS, 64 · W]: `normed` of a layer
  float* numbers = (float*)(saved + GROUPS * 64 * W);  // [2, 2, W]: scale and shift of a layer, and of the one before
  float* columns = numbers + 4 * W;                    // [GROUPS, 4 warps, 2, W]: sums over a warp's rows
  float2* sums = (float2*)(columns + (WEIGHTS ? GROUPS * 8 * W : 0));  // [GROUPS, SLICES, 64]
  u64* barriers = (u64*)(sums + GROUPS * SLICES * 64);
  const Ring ring = {tiles, barriers, barriers + STAGES};
  u64 *vectors_full = barriers + 2 * STAGES, *vectors_empty = vectors_full + 2;
  u64 *saved_full = vectors_empty + 2, *saved_empty = saved_full + GROUPS;  // of each tile
  u64 *sums_full = saved_empty + GROUPS, *left_full = sums_full + 1;        // of what other blocks send
  const Share share;
  const int network = blockIdx.y, batch = gridDim.x / CLUSTER * ROWS, first = blockIdx.x / CLUSTER * ROWS + share.tile * 64;
  if (threadIdx.x == 0) {
    ring.start();
    for (int i = 0; i < 2; i++) start_barrier(vectors_full + i, 1), start_barrier(vectors_empty + i, GROUPS);
    for (int i = 0; i < GROUPS; i++) start_barrier(saved_full + i, 1), start_barrier(saved_empty + i, 1);
    if (CLUSTER > 1) start_barrier(sums_full, 1), start_barrier(left_full, 1);
    show_barriers();
  }
  if (CLUSTER > 1) sync_cluster();
  else __syncthreads();

  if (threadIdx.x >= COMPUTING) {
    give_registers();
    const int turn = uniform(share.warp);  // of four threads that copy
    if (share.lane == 0) {
      weights += (size_t)network * (INPUTS + LAYERS * W) * W;
      heads += (size_t)network * 2 * W * OUTPUTS;
      vectors += (size_t)network * (1 + LAYERS) * 3 * W;
      normed += ((size_t)network * (1 + LAYERS) * batch + blockIdx.x / CLUSTER * ROWS) * W;
      int t = 0;
      // Tiles of CHUNK columns of a matrix with W rows, of which a block has its own, and `wide` columns: a copy for each eight rows.
      auto fetch_columns = [&](const bf16* from, int wide) {
        constexpr int ALL = NJ / CLUSTER, EACH = (ALL + 3) / 4;
        from += (share.rank * ALL + turn * EACH) * wide * 8;
        for (int c = 0; c < wide / CHUNK; c++, t++) {
          ring.wait_empty(t);
          if (turn == 0) announce(ring.full + t % STAGES, 2 * CHUNK * BLOCK_COLS);
          bf16* to = ring[t] + turn * EACH * CHUNK * 8;
#pragma unroll
          for (int i = 0; i < EACH; i++)
            if (ALL % 4 == 0 || turn * EACH + i < ALL)
              copy(to + i * CHUNK * 8, from + (i * wide + c * CHUNK) * 8, 16 * CHUNK, ring.full + t % STAGES);
        }
      };
      fetch_columns(heads, OUTPUTS);
      for (int layer = LAYERS, step = 0; layer >= 0; layer--, step++) {
        if (NORM && turn == 0) {
          if (step >= 2) wait_for(vectors_empty + step % 2, step / 2 - 1);
          announce(vectors_full + step % 2, 8 * W);
          copy(numbers + step % 2 * 2 * W, vectors + (layer * 3 + 1) * W, 8 * W, vectors_full + step % 2);
        }
        for (int tile = 0; tile < GROUPS && turn == 0; tile++) {
          if (step > 0) wait_for(saved_empty + tile, step - 1);
          const bf16* from = normed + ((size_t)layer * batch + tile * 64) * W;
          announce(saved_full + tile, 128 * BLOCK_COLS);
          if (CLUSTER == 1) copy(saved + tile * 64 * W, from, 128 * W, saved_full + tile);
          else
            for (int i = 0; i < 4; i++)  // 16 rows each
              copy(saved + i * 16 * BLOCK_COLS, from + i * 16 * W + share.rank * 16 * BLOCK_COLS, 32 * BLOCK_COLS, saved_full + tile);
        }
        if (layer > 0) fetch_columns(weights + (INPUTS + (layer - 1) * W) * W, W);
      }
      if (D_INPUT && turn == 0)
        for (int c = share.rank; c < INPUTS / CHUNK; c += CLUSTER, t++) {
          ring.wait_empty(t);
          announce(ring.full + t % STAGES, 2 * CHUNK * W);
          copy(ring[t], weights + c * CHUNK * W, 2 * CHUNK * W, ring.full + t % STAGES);
        }
    }
    return end_cluster();
  }

  take_registers();
  float acc[COLS / 2];
  left += share.tile * 64 * WIDEST, saved += share.tile * 64 * W, sums += share.tile * SLICES * 64;
  columns += share.tile * 8 * W;
  gradient += ((size_t)network * batch + first) * OUTPUT;
  inverse += ((size_t)network * (1 + LAYERS) + LAYERS) * batch + first + share.row;
  bf16* own = left + share.own_row();
  const uint4* kept = (const uint4*)saved + (share.warp * (NK / CLUSTER) + share.part * OWN) * 32 + share.lane;
#if BLOCK
  SKIP_ROOM
#endif
#if WEIGHTS
  d_output += ((size_t)network * batch + first) * OUTPUTS;
  d_products += (((size_t)network * (1 + LAYERS) + LAYERS) * batch + first) * W;
  parts += ((size_t)network * (batch / 64) + first / 64) * (1 + LAYERS) * 2 * W;
#endif

  // Through the head.
#pragma unroll 4
  for (int i = share.thread; i < 32 * OUTPUTS; i += TILE_THREADS) {
    const int block = i / 32, row = block / (OUTPUTS / 8) * 8 + share.lane / 4, col = block % (OUTPUTS / 8) * 8 + share.lane % 4 * 2;
    const float* at = gradient + row * OUTPUT + col;
    put(left + 2 * i, pack(col < OUTPUT ? at[0] : 0.0f, col + 1 < OUTPUT ? at[1] : 0.0f));
  }
  show_stores();
  share.meet();
#if WEIGHTS
  share.keep(d_output, OUTPUTS, left, OUTPUTS);
#endif
  int t = 0;
  clear(acc);
  multiply_left<COLS, true, OUTPUTS, 0>(acc, left, share, ring, t);
  float next[2] = {1.0f, 1.0f};  // inverse deviations, read while products are under way
  if (NORM) next[0] = inverse[0], next[1] = inverse[8];
  finish_products(ring, t);

  for (int layer = LAYERS, turn = 0; layer >= 0; layer--, turn++) {
    // Through the activation, and through scale and shift.
    if (NORM) wait_for(vectors_full + turn % 2, turn / 2);
    wait_for(saved_full + share.tile, turn);
    const float* by = numbers + turn % 2 * 2 * W + share.slice * COLS + share.lane % 4 * 2;
    float m1[2] = {0.0f, 0.0f}, m2[2] = {0.0f, 0.0f};
#if WEIGHTS
    float* column = columns + share.warp * 2 * W + share.slice * COLS + share.lane % 4 * 2;
    // Sums over rows are a product with ones: two blocks, one below the other, on the right, and their sums in the rows above
    // and below. All lanes / 4 have the same.
    const u32 ones[4] = {0x3f803f80u, 0u, 0u, 0x3f803f80u};
    auto write_sums = [&](float* to, u32 low, u32 high) {
      float sum[4];
      product_small(sum, ones, transpose(low), transpose(high));
      *(float2*)to = make_float2(sum[0], sum[1]);
      *(float2*)(to + 8) = make_float2(sum[2], sum[3]);
    };
#endif
#pragma unroll
    for (int k = 0; k < OWN; k++) {
#if BLOCK
      if (layer % BLOCK == 0) {
        if (layer < LAYERS) add_words(acc + 8 * k, SKIP(k));
        if (layer > 0) SKIP(k) = packed(acc + 8 * k);
      }
#endif
      const uint4 four = kept[k * 32];
      const u32 words[4] = {four.x, four.y, four.z, four.w};
      float2 shifts[2], scales[2];
#pragma unroll
      for (int p = 0; p < 2; p++) {
        const int j = 2 * k + p;
        float2 s = make_float2(0.5f, 0.5f), b = make_float2(0.0f, 0.0f);
        if (NORM) s = *(const float2*)(by + j * 8), b = *(const float2*)(by + W + j * 8);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float* d = acc + 4 * j + 2 * h;
          const float2 n = unpack(words[2 * p + h]);
          // The derivative of h (1 + tanh h) by u = 2 h is (1 + tanh h + h (1 − tanh² h)) / 2; the half is in `s`.
          const float2 u = make_float2(n.x * s.x + b.x, n.y * s.y + b.y);
          const float2 v = make_float2(tanh_of(u.x), tanh_of(u.y));
          d[0] += d[0] * (v.x + u.x * (1.0f - v.x * v.x));
          d[1] += d[1] * (v.y + u.y * (1.0f - v.y * v.y));
          if (NORM && WEIGHTS) {
            shifts[p] = h ? make_float2(shifts[p].x + d[0], shifts[p].y + d[1]) : make_float2(d[0], d[1]);
            scales[p] = h ? make_float2(scales[p].x + d[0] * n.x, scales[p].y + d[1] * n.y) : make_float2(d[0] * n.x, d[1] * n.y);
          }
          d[0] *= s.x, d[1] *= s.y;
          if (NORM) {
            m1[h] += d[0] + d[1];
            m2[h] = d[0] * n.x + (d[1] * n.y + m2[h]);
          }
        }
      }
#if WEIGHTS
      if (NORM) {
        write_sums(column + k * 16, pack(scales[0].x, scales[0].y), pack(scales[1].x, scales[1].y));
        write_sums(column + W + k * 16, pack(shifts[0].x, shifts[0].y), pack(shifts[1].x, shifts[1].y));
      }
#endif
    }
    if (NORM) {
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int mask = 1; mask < 4; mask *= 2) m1[h] += across(m1[h], mask), m2[h] += across(m2[h], mask);
    }
#if WEIGHTS
    share.wait_kept();
#endif
    share.add_slices(sums, m1, m2, sums_full, turn);
    // Through the LayerNorm.
    const float inv[2] = {next[0], next[1]};
    if (NORM) {
#pragma unroll
      for (int h = 0; h < 2; h++) m1[h] *= -inv[h] * (1.0f / W), m2[h] *= -inv[h] * (1.0f / W);
    }
#pragma unroll
    for (int k = 0; k < OWN; k++) {
      if (NORM) {
        const uint4 four = kept[k * 32];
        const u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          float* d = acc + 8 * k + 2 * i;
          const float2 n = unpack(words[i]);
          d[0] = d[0] * inv[i % 2] + (n.x * m2[i % 2] + m1[i % 2]), d[1] = d[1] * inv[i % 2] + (n.y * m2[i % 2] + m1[i % 2]);
        }
      }
      store_matrices(own + k * 128, packed(acc + 8 * k));
    }
    show_stores();
#if WEIGHTS
    share.send_left(left, left_full, d_products);
    if (NORM)  // the four warps' sums, of gradients by half of scale and shift
      for (int i = share.thread; i < 2 * BLOCK_COLS; i += TILE_THREADS) {
        const int at = i / BLOCK_COLS * W + share.rank * BLOCK_COLS + i % BLOCK_COLS;
        parts[layer * 2 * W + at] = 0.5f * (columns[at] + columns[2 * W + at] + columns[4 * W + at] + columns[6 * W + at]);
      }
#else
    share.send_left(left, left_full, 0);
#endif
    share.meet();
    if (share.thread == 0) {
      arrive(saved_empty + share.tile);
      if (NORM) arrive(vectors_empty + turn % 2);
    }
#if WEIGHTS
    if (CLUSTER == 1) share.keep(d_products, W, left, W);
    d_products -= batch * W;
#endif
    inverse -= batch;
    share.wait_left(left_full, turn);
    if (layer == 0) break;
    // Through the product with the layer's weights.
    clear(acc);
    multiply_left<COLS, true, W, 0>(acc, left, share, ring, t);
    if (NORM) next[0] = inverse[0], next[1] = inverse[8];
    finish_products(ring, t);
  }
#if D_INPUT
  constexpr int M = CHUNK / SPLIT;
  d_input += ((size_t)network * batch + first + share.row) * INPUT;
  for (int c = share.rank; c < INPUTS / CHUNK; c += CLUSTER, t++) {  // columns of the gradient, CHUNK at a time
    float back[M / 2];
    clear(back);
    ring.wait_full(t);
    const Matrix a = matrix(left, BLOCK_BYTES, NJ * BLOCK_BYTES), b = matrix(ring[t] + share.part * M * W, BLOCK_BYTES, NJ * BLOCK_BYTES);
    start_products();
#pragma unroll
    for (int k = 0; k < NK; k++) multiply<1>(back, moved(a, k * 128), moved(b, k * 128));
    end_products();
    wait_products<0>();
    ring.release(t);
#pragma unroll
    for (int i = 0; i < M / 2; i++) {
      const int col = c * CHUNK + share.part * M + i / 4 * 8 + share.lane % 4 * 2 + i % 2;
      if (col < INPUT) d_input[i / 2 % 2 * 8 * INPUT + col] = back[i];
    }
  }
#endif
#if WEIGHTS
  if (share.lane < 8) wait_stores();
#endif
  end_cluster();
}

#endif
