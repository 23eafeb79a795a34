// Whole networks (fused.cuh): weights as their kernels read them, and the gradients of all weights.
//
// Set by the compiler's command line:
//   W, INPUTS, INPUT, LAYERS, OUTPUTS, OUTPUT, NORM   as in fused.cuh
//   LEAVES    arrays that the weights of the layers after the first come in, 1 or 4: layer l is in array (l − 1) % LEAVES
//   FUSED_PACK, FUSED_WEIGHTS   which kernel is compiled, the second with
//   GROUPS    warpgroups of a block that compute: 1 or 2
//   STAGES    tiles in flight
//   BATCH     rows of the batch

#if GROUPS == 2
#define TAKEN "240"
#endif
#include "hopper.cuh"

// Arrays with the weights of the layers after the first.
#if LEAVES == 4
#define OTHERS(kind) kind __restrict__ others0, kind __restrict__ others1, kind __restrict__ others2, kind __restrict__ others3
#define OTHER(i) ((i) % 4 == 0 ? others0 : (i) % 4 == 1 ? others1 : (i) % 4 == 2 ? others2 : others3)
#else
#define OTHERS(kind) kind __restrict__ others0
#define OTHER(i) others0
#endif

#ifdef FUSED_PACK

// Weights as the other kernels read them, in blocks and bfloat16; the first layer's and the head's padded with zeros.
// A block of threads converts eight rows.

extern "C" __global__ void __launch_bounds__(256) fused_pack(
    const float* __restrict__ first,   // [networks, INPUT, W]
    OTHERS(const float*),              // each [networks, LAYERS / LEAVES, W, W]
    const float* __restrict__ head,    // [networks, W, OUTPUT]
    bf16* __restrict__ weights,        // [networks, INPUTS + LAYERS · W rows, W], in blocks
    bf16* __restrict__ heads           // [networks, 2, W rows, OUTPUTS], in blocks: the head's weights, and what rounding left of them
) {
  const int rows = INPUTS + LAYERS * W, network = blockIdx.y, r = blockIdx.x * 8;
  if (r < rows) {
    const bool in_first = r < INPUTS;
    const int layer = in_first ? 0 : (r - INPUTS) / W, row = (r - INPUTS) % W;  // of the others
    const float* from = in_first ? first + ((size_t)network * INPUT + r) * W
                                 : OTHER(layer) + (((size_t)network * (LAYERS / LEAVES) + layer / LEAVES) * W + row) * W;
    u32* to = (u32*)(weights + ((size_t)network * rows + r) * W);
    for (int i = threadIdx.x; i < 8 * W / 2; i += 256) {
      const int own = i / 4 % 8, col = i / 32 * 8 + i % 4 * 2;
      float2 value = make_float2(0.0f, 0.0f);
      if (!in_first || r + own < INPUT) value = *(const float2*)(from + own * W + col);
      to[i] = pack(value.x, value.y);
    }
    return;
  }
  const int h = r - rows;
  const float* from = head + ((size_t)network * W + h) * OUTPUT;
  u32* to = (u32*)(heads + ((size_t)network * 2 * W + h) * OUTPUTS);
  for (int i = threadIdx.x; i < 8 * OUTPUTS / 2; i += 256) {
    const int row = i / 4 % 8, col = i / 32 * 8 + i % 4 * 2;
    const float2 value = make_float2(col < OUTPUT ? from[row * OUTPUT + col] : 0.0f, col + 1 < OUTPUT ? from[row * OUTPUT + col + 1] : 0.0f);
    const u32 high = pack(value.x, value.y);
    to[i] = high;
    to[W * OUTPUTS / 2 + i] = pack(value.x - unpack(high).x, value.y - unpack(high).y);
  }
}

#endif

#ifdef FUSED_WEIGHTS

// Gradients of all weights and vectors: inputs' · gradients of products, summed over the batch. A block of threads makes 64 · GROUPS
// rows of one layer's; the last block of a network adds the parts of the gradients of scales and shifts.

#define ROWS (64 * GROUPS)
#define COMPUTING (128 * GROUPS)            // threads that compute; a warpgroup after them copies
#define THREADS (COMPUTING + 128)
#define TILE (64 * (ROWS + (OUTPUTS > W ? OUTPUTS : W)))  // elements of a stage
#define ABOVE ((INPUTS + ROWS - 1) / ROWS)  // blocks for the first layer
#define EACH ((W + ROWS - 1) / ROWS)        // for each of the others, and for the head

typedef TileRing<STAGES, TILE, GROUPS> Ring;

// A warpgroup's part: which it is, and where its threads stand.
struct Place {
  int group, warp, lane, row;  // `row`: the first of its two in the warpgroup's 64
  __device__ __forceinline__ Place() {
    group = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    row = warp * 16 + lane / 4;
  }
};

template <int N, int WIDE, bool BIAS>
__device__ __forceinline__ void weight_rows(
    const Ring& ring, const Place& place, float* to, int rows, int columns, int stride, float* d_bias) {
  float acc[N / WIDE][WIDE / 2];
#pragma unroll
  for (int n = 0; n < N / WIDE; n++) clear(acc[n]);
  // A warp's share of the columns for the gradient of the bias, in blocks.
  constexpr int SHARE = BIAS ? N / 8 / (4 * GROUPS) : 1;
  const int share = (place.group * 4 + place.warp) * SHARE;
  float2 sums[SHARE];
#pragma unroll
  for (int i = 0; i < SHARE; i++) sums[i] = make_float2(0.0f, 0.0f);
  for (int t = 0; t < BATCH / 64; t++) {
    ring.wait_full(t);
    const bf16 *left = ring[t] + place.group * 64 * 8, *right = ring[t] + 64 * ROWS;
    start_products();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int n = 0; n < N / WIDE; n++)
        multiply(acc[n], matrix(left + k * 16 * ROWS, ROWS / 8 * BLOCK_BYTES, BLOCK_BYTES),
                 matrix(right + k * 16 * N + n * WIDE * 8, N / 8 * BLOCK_BYTES, BLOCK_BYTES));
    end_products();
    if (BIAS) {
#pragma unroll
      for (int i = 0; i < 8 * SHARE; i++) {
        const float2 value = unpack(((const u32*)right)[(i / SHARE * (N / 8) + share + i % SHARE) * 32 + place.lane]);
        sums[i % SHARE].x += value.x, sums[i % SHARE].y += value.y;
      }
      sync_threads(3 + place.group, 128);  // all warps have read the tile before the next one releases it
    }
    if (t > 0) wait_products<1>(), ring.release(t - 1);
  }
  wait_products<0>();
  if (BIAS) {
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) sums[i].x += across(sums[i].x, mask), sums[i].y += across(sums[i].y, mask);
      if (place.lane < 4) *(float2*)(d_bias + (share + i) * 8 + place.lane * 2) = sums[i];
    }
  }
#pragma unroll
  for (int n = 0; n < N / WIDE; n++)
#pragma unroll
    for (int j = 0; j < WIDE / 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = place.group * 64 + place.row + h * 8, col = n * WIDE + j * 8 + place.lane % 4 * 2;
        if (row >= rows) continue;
        float* at = to + (size_t)row * stride + col;
        const float x = acc[n][4 * j + 2 * h], y = acc[n][4 * j + 2 * h + 1];
        if (stride % 2 == 0 && col < columns) *(float2*)at = make_float2(x, y);
        else {
          if (col < columns) at[0] = x;
          if (col + 1 < columns) at[1] = y;
        }
      }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_weights(
    const bf16* __restrict__ inputs,       // [networks, BATCH, INPUTS], in blocks
    const bf16* __restrict__ activations,  // [networks, 1 + LAYERS, BATCH, W], in blocks
    const bf16* __restrict__ d_products,   // [networks, 1 + LAYERS, BATCH, W], in blocks
    const bf16* __restrict__ d_output,     // [networks, BATCH, OUTPUTS], in blocks
    const float* __restrict__ parts,       // [networks, BATCH / 64, 1 + LAYERS, 2, W]
    float* __restrict__ d_first,           // [networks, INPUT, W]
    OTHERS(float*),                        // each [networks, LAYERS / LEAVES, W, W]
    float* __restrict__ d_head,            // [networks, W, OUTPUT]
    float* __restrict__ d_vectors          // [networks, 1 + LAYERS, 3, W]
) {
  SHARED
  bf16* tiles = (bf16*)shared;
  u64* barriers = (u64*)(tiles + STAGES * TILE);
  const Ring ring = {tiles, barriers, barriers + STAGES};
  const Place place;
  const int network = blockIdx.y, item = blockIdx.x;
  d_vectors += (size_t)network * (1 + LAYERS) * 3 * W;
  if (item == ABOVE + (LAYERS + 1) * EACH) {
    for (int i = threadIdx.x; i < (1 + LAYERS) * 2 * W; i += THREADS) {
      const float* at = parts + (size_t)network * (BATCH / 64) * (1 + LAYERS) * 2 * W + i;
      float sum = 0.0f;
      if (NORM)
        for (int part = 0; part < BATCH / 64; part++) sum += at[part * (1 + LAYERS) * 2 * W];
      d_vectors[i / (2 * W) * 3 * W + W + i % (2 * W)] = sum;
    }
    return;
  }
  if (threadIdx.x == 0) ring.start(), show_barriers();
  __syncthreads();

  // What this block makes: rows `row` and on of the gradient of the layer's weights.
  const bool is_first = item < ABOVE, is_head = item >= ABOVE + LAYERS * EACH;
  const int layer = is_first ? 0 : (item - ABOVE) / EACH + 1;  // LAYERS + 1: the head
  const int row = (is_first ? item : (item - ABOVE) % EACH) * ROWS, above = is_first ? INPUTS : W;
  const int rows = above - row < ROWS ? above - row : ROWS;  // in this block

  if (threadIdx.x >= COMPUTING) {
    give_registers();
    if (threadIdx.x >= COMPUTING + 32) return;
    const bf16* left = is_first ? inputs + (size_t)network * BATCH * INPUTS
                                : activations + ((size_t)network * (1 + LAYERS) + layer - 1) * BATCH * W;
    const bf16* right = is_head ? d_output + (size_t)network * BATCH * OUTPUTS
                                : d_products + ((size_t)network * (1 + LAYERS) + layer) * BATCH * W;
    const int wide = is_head ? OUTPUTS : W;
    for (int t = 0; t < BATCH / 64; t++) {
      ring.wait_empty(t);
      if (place.lane == 0) {
        announce(ring.full + t % STAGES, 128 * (rows + wide));
        copy(ring[t] + 64 * ROWS, right + (size_t)t * 64 * wide, 128 * wide, ring.full + t % STAGES);
      }
      sync_warp();
      if (place.lane < 8)
        copy(ring[t] + place.lane * 8 * ROWS, left + ((size_t)t * 8 + place.lane) * 8 * above + row * 8, 16 * rows, ring.full + t % STAGES);
    }
    return;
  }

  take_registers();
  if (is_head) {
    weight_rows<OUTPUTS, 64, false>(ring, place, d_head + ((size_t)network * W + row) * OUTPUT, rows, OUTPUT, OUTPUT, 0);
    return;
  }
  float* to = is_first ? d_first + (size_t)network * INPUT * W
                       : OTHER(layer - 1) + ((size_t)network * (LAYERS / LEAVES) + (layer - 1) / LEAVES) * W * W;
  const int real = is_first && INPUT - row < rows ? INPUT - row : rows;
  if (row == 0) weight_rows<W, W, true>(ring, place, to, real, W, W, d_vectors + layer * 3 * W);
  else weight_rows<W, W, false>(ring, place, to + row * W, real, W, W, 0);
}

#endif
