// Whole networks by the matrix units of Hopper cards: hidden layers and a linear head. What the forward and the backward kernel share;
// fused_weights.cu has the gradients of weights.
//
// A tile of 64 rows of the batch goes through all layers. SPLIT warpgroups of a block, of CLUSTER blocks, share its columns: each has its
// own of the accumulators, and what they normalise and activate is the left operand of the next product, in shared memory for all of
// them. Sums over a row are exchanged there too. Weights stream from L2 through a ring of tiles that all warpgroups of a block share;
// threads of a warpgroup of its own copy them, four where many copies are small. What the gradients of weights need leaves as bulk copies
// of left operands. With two tiles in a block, one multiplies while the other normalises and activates.
//
// A layer of a tile: products; sums of rows are shown; barrier (nobody reads the left operand any more); elements, the next left
// operand; barrier.
//
// Matrices are kept in blocks of 8 × 8 numbers (hopper.cuh). Products have bfloat16 operands and float32 sums. The head's weights are
// two bfloat16 numbers each, their sum as exact as 16 bits allow.
//
// Set by the compiler's command line:
//   W         width of the layers: 64, 128, 192 or 256
//   INPUTS    width of the input, padded to a multiple of 64
//   INPUT     width of the input as it is
//   LAYERS    layers after the first
//   OUTPUTS   width of the output, padded to a multiple of 64, at most 256
//   OUTPUT    width of the output as it is
//   NORM      1: LayerNorm before the activation
//   BLOCK     layers that a skip connection goes around; 0: none
//   GROUPS    tiles of a block: 1 or 2
//   SPLIT     warpgroups of a tile in a block: 2, or 4 where GROUPS is 1
//   CLUSTER   blocks that share a tile: 1, or 2 or 4 where GROUPS is 1. Each has its columns of the accumulators, copies the weights
//             of these alone, and sends the others what it made of the next left operand
//   CHUNK     steps of a reduction in a tile of weights: 32 or 64
//   STAGES    tiles of weights in flight
//   SAVE      forward: 0 writes the output alone, 1 also what the input's gradient needs, 2 what all gradients need
//   WEIGHTS   backward: 1 also writes what the gradients of weights and vectors need
//   D_INPUT   backward: 1 writes the input's gradient

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
  // Two tiles of a block take turns: one has the matrix units while the other computes elements.
  __device__ __forceinline__ void wait_turn() const {
    if (GROUPS == 2) sync_threads(1 + tile, 2 * TILE_THREADS);
    else meet();
  }
  __device__ __forceinline__ void pass_turn() const {
    if (GROUPS == 2) show_arrival(2 - tile, 2 * TILE_THREADS);
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
