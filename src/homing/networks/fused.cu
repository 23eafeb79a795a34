// Whole networks by the matrix units of Hopper cards: hidden layers and a linear head, forward, backward, and the
// gradients of all weights.
//
// A warpgroup takes 64 rows of the batch through all layers. Their activations never leave its registers: the
// accumulators of one layer's products are normalised, activated and packed into the left operand of the next. Weights
// stream from L2 through a ring of tiles in shared memory, which all warpgroups of a block share; a warp of its own copies
// them. With two warpgroups, one multiplies while the other normalises and activates.
//
// Matrices are kept in blocks of 8 × 8 numbers (hopper.cuh).
//
// Products have bfloat16 operands and float32 sums. The head's weights are two bfloat16 numbers each, their sum as exact
// as 16 bits allow.
//
// Set by the compiler's command line:
//   W         width of the layers: 64, 128, 192 or 256
//   INPUTS    width of the input, padded to a multiple of 64
//   INPUT     width of the input as it is
//   LAYERS    layers after the first
//   OUTPUTS   width of the output, padded to a multiple of 64, at most 256
//   OUTPUT    width of the output as it is
//   GROUPS    warpgroups of a block that compute: 1 or 2
//   STAGES    tiles in flight
//   NORM      1: LayerNorm before the activation
//   BLOCK     layers that a skip connection goes around; 0: none
//   LEAVES    arrays that the weights of the layers after the first come in, 1 or 4: layer l is in array (l − 1) % LEAVES
//   BATCH     rows of the batch, where a kernel cannot tell by its grid
//   SAVE      forward: 0 writes the output alone, 1 also what the input's gradient needs, 2 what all gradients need
//   WEIGHTS   backward: 1 also writes what the gradients of weights and vectors need
//   D_INPUT   backward: 1 writes the input's gradient
//   FUSED_PACK, FUSED_FORWARD, FUSED_BACKWARD, FUSED_WEIGHTS   which kernel is compiled

#define ROWS (64 * GROUPS)
#define COMPUTING (128 * GROUPS)         // threads that compute; a warpgroup after them copies
#define THREADS (COMPUTING + 128)
#define NJ (W / 8)                       // blocks across a layer
#define NK (W / 16)                      // steps of a product over a layer
#define OJ (OUTPUTS / 8)
#define WIDEST (OUTPUTS > W ? OUTPUTS : W)
#ifdef FUSED_WEIGHTS                     // elements of a stage
#define TILE (64 * (ROWS + WIDEST))
#else
#define TILE (64 * WIDEST)
#endif
#define EPSILON 1e-6f

#include "hopper.cuh"

typedef TileRing<STAGES, TILE, GROUPS> Ring;

// Two warpgroups take turns: one has the matrix units while the other computes elements. A turn's tiles must fit into the
// ring, since they are released by both.

__device__ __forceinline__ void wait_turn(const Place& place) {
  if (GROUPS == 2) sync_threads(1 + place.group, 256);
}
__device__ __forceinline__ void pass_turn(const Place& place) {
  if (GROUPS == 2) show_arrival(2 - place.group, 256);
}

static_assert(GROUPS == 1 || (W / 64 <= STAGES && OUTPUTS / 64 <= STAGES), "a turn's tiles");

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

#ifdef FUSED_FORWARD

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_forward(
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
) {
  SHARED
  bf16* tiles = (bf16*)shared;
  u32* skips = (u32*)(tiles + STAGES * TILE);                       // [GROUPS, W / 4, 128 threads]
  float* numbers = (float*)(skips + (BLOCK ? GROUPS * 32 * W : 0));  // [2, 3, W]: vectors of a layer, and of the next
  u64* barriers = (u64*)(numbers + 6 * W);
  const Ring ring = {tiles, barriers, barriers + STAGES};
  u64 *vectors_full = barriers + 2 * STAGES, *vectors_empty = vectors_full + 2;
  const Place place;
  const int network = blockIdx.y, batch = gridDim.x * ROWS, first = blockIdx.x * ROWS + place.group * 64;
  if (threadIdx.x == 0) {
    ring.start();
    for (int i = 0; i < 2; i++) start_barrier(vectors_full + i, 1), start_barrier(vectors_empty + i, GROUPS);
    show_barriers();
  }
  __syncthreads();

  if (threadIdx.x >= COMPUTING) {
    give_registers();
    if (threadIdx.x > COMPUTING) return;
    weights += (size_t)network * (INPUTS + LAYERS * W) * W;
    heads += (size_t)network * 2 * W * OUTPUTS;
    vectors += (size_t)network * (1 + LAYERS) * 3 * W;
    const bf16* from = weights;
    int t = 0;
    for (int layer = 0; layer <= LAYERS + 1; layer++) {
      if (layer > LAYERS) from = heads;
      else {
        if (layer >= 2) wait_for(vectors_empty + layer % 2, layer / 2 - 1);
        announce(vectors_full + layer % 2, 12 * W);
        copy(numbers + layer % 2 * 3 * W, vectors + layer * 3 * W, 12 * W, vectors_full + layer % 2);
      }
      const int count = layer == 0 ? INPUTS / 64 : layer <= LAYERS ? W / 64 : 2 * (W / 64), wide = layer <= LAYERS ? W : OUTPUTS;
      for (int c = 0; c < count; c++, t++) {
        ring.wait_empty(t);
        announce(ring.full + t % STAGES, 128 * wide);
        copy(ring[t], from, 128 * wide, ring.full + t % STAGES);
        from += 64 * wide;
      }
    }
    return;
  }

  take_registers();
  float acc[W / 2];
  u32 a[W / 4];
  x += ((size_t)network * batch + first + place.row) * INPUTS + place.lane % 4 * 2;
  u32* skip = skips + place.group * 32 * W + threadIdx.x % 128;
#if SAVE
  uint4* kept = (uint4*)(normed + ((size_t)network * (1 + LAYERS) * batch + first) * W) + place.warp * NK * 32 + place.lane;
  inverse += (size_t)network * (1 + LAYERS) * batch + first + place.row;
#endif
#if SAVE == 2
  u32* entered = (u32*)(inputs + ((size_t)network * batch + first) * INPUTS) + place.word(INPUTS / 8, 0, 0);
  u32* activated = (u32*)(activations + ((size_t)network * (1 + LAYERS) * batch + first) * W) + place.word(NJ, 0, 0);
#endif
  if (GROUPS == 2 && place.group == 1) pass_turn(place);

  // Of the input, 64 columns at a time: as many as the registers of a layer hold before the turn.
  auto load_input = [&](u32* to, int c) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
      to[i] = *(const u32*)(x + i % 2 * 8 * INPUTS + c * 64 + i / 2 * 8);
#if SAVE == 2
      entered[(i % 2 * (INPUTS / 8) + c * 8 + i / 2) * 32] = to[i];
#endif
    }
  };
#define AHEAD (INPUTS < W ? INPUTS / 64 : W / 64)
#pragma unroll
  for (int c = 0; c < AHEAD; c++) load_input(a + 16 * c, c);

  int t = 0;
  for (int layer = 0; layer <= LAYERS; layer++) {
    clear(acc);
    if (layer == 0) {
      multiply_tiles<W, false, AHEAD>(acc, a, ring, t);
      for (int c = AHEAD; c < INPUTS / 64; c++) {
        load_input(a, c);
        multiply_tiles<W, false, 1>(acc, a, ring, t);
      }
    } else {
      wait_turn(place);
      multiply_tiles<W, false, W / 64>(acc, a, ring, t);
      if (layer < LAYERS || place.group == 0) pass_turn(place);
    }

    wait_for(vectors_full + layer % 2, layer / 2);
    const float* by = numbers + layer % 2 * 3 * W + place.lane % 4 * 2;
    float mean[2] = {0.0f, 0.0f}, inv[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < NJ; j++) {
      const float2 b = *(const float2*)(by + j * 8);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float *z = acc + 4 * j + 2 * h;
        z[0] += b.x, z[1] += b.y;
        if (NORM) mean[h] += z[0] + z[1], inv[h] += z[0] * z[0] + z[1] * z[1];
      }
    }
    if (NORM) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int mask = 1; mask < 4; mask *= 2) mean[h] += across(mean[h], mask), inv[h] += across(inv[h], mask);
        mean[h] *= 1.0f / W;
        inv[h] = rsqrtf(fmaxf(inv[h] * (1.0f / W) - mean[h] * mean[h], 0.0f) + EPSILON);
        mean[h] *= -inv[h];
#if SAVE
        if (place.lane % 4 == 0) inverse[h * 8] = inv[h];
#endif
      }
    }
    const bool skips_to = BLOCK && layer > 0 && layer % (BLOCK ? BLOCK : 1) == 0, skips_from = BLOCK && layer % (BLOCK ? BLOCK : 1) == 0;
#pragma unroll
    for (int j = 0; j < NJ; j++) {
      float2 s = make_float2(0.5f, 0.5f), b = make_float2(0.0f, 0.0f);
      if (NORM) s = *(const float2*)(by + W + j * 8), b = *(const float2*)(by + 2 * W + j * 8);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float *z = acc + 4 * j + 2 * h;
        if (NORM) z[0] = z[0] * inv[h] + mean[h], z[1] = z[1] * inv[h] + mean[h];
#if SAVE
        a[2 * j + h] = pack(z[0], z[1]);
#endif
        // swish(u) = u σ(u) = h (1 + tanh h) with h = u / 2
        const float2 u = make_float2(z[0] * s.x + b.x, z[1] * s.y + b.y);
        z[0] = u.x * tanh_of(u.x) + u.x, z[1] = u.y * tanh_of(u.y) + u.y;
      }
#if SAVE
      if (j % 2) kept[j / 2 * 32] = make_uint4(a[2 * j - 2], a[2 * j - 1], a[2 * j], a[2 * j + 1]);
#endif
    }
    // All of the warpgroup's threads have read the layer's vectors.
    sync_threads(3 + place.group, 128);
    if (threadIdx.x % 128 == 0) arrive(vectors_empty + layer % 2);
#pragma unroll
    for (int i = 0; i < W / 4; i++) {
      float y0 = acc[2 * i], y1 = acc[2 * i + 1];
      if (skips_to) {
        const float2 before = unpack(skip[i * 128]);
        y0 += before.x, y1 += before.y;
      }
      a[i] = pack(y0, y1);
      if (skips_from) skip[i * 128] = a[i];
#if SAVE == 2
      activated[(i % 2 * NJ + i / 2) * 32] = a[i];
#endif
    }
#if SAVE
    kept += batch * (W / 8), inverse += batch;
#endif
#if SAVE == 2
    activated += batch * (W / 2);
#endif
  }

  // The head.
  float made[OUTPUTS / 64][32];
#pragma unroll
  for (int n = 0; n < OUTPUTS / 64; n++) clear(made[n]);
  for (int part = 0; part < 2; part++)
#pragma unroll
    for (int c = 0; c < W / 64; c++, t++) {
      ring.wait_full(t);
      start_products();
#pragma unroll
      for (int n = 0; n < OUTPUTS / 64; n++)
#pragma unroll
        for (int k = 0; k < 4; k++)
          multiply<0>(made[n], a + 16 * c + 4 * k, matrix(ring[t] + (k * 2 * OJ + n * 8) * 64, OJ * BLOCK_BYTES, BLOCK_BYTES));
      end_products();
      wait_products<0>();
      ring.release(t);
    }
  out += ((size_t)network * batch + first + place.row) * OUTPUT;
  bias += network * OUTPUT;
#pragma unroll
  for (int n = 0; n < OUTPUTS / 64; n++)
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int col = n * 64 + j * 8 + place.lane % 4 * 2 + i % 2;
        if (col < OUTPUT) out[i / 2 * 8 * OUTPUT + col] = made[n][4 * j + i] + bias[col];
      }
}

#endif

#ifdef FUSED_BACKWARD

extern "C" __global__ void __launch_bounds__(THREADS, 1) fused_backward(
    const float* __restrict__ gradient,  // [networks, batch, OUTPUT]: of the output
    const bf16* __restrict__ weights,    // as packed
    const bf16* __restrict__ heads,      // as packed; the first of the two is used
    const float* __restrict__ vectors,   // as in the forward kernel
    const bf16* __restrict__ normed,     // as the forward kernel wrote them
    const float* __restrict__ inverse
#if BLOCK
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
  bf16* saved = tiles + STAGES * TILE;                // [GROUPS, 64 · W]: `normed` of a layer
  float* numbers = (float*)(saved + GROUPS * 64 * W);  // [2, 2, W]: scale and shift of a layer, and of the one before
  float* sums = numbers + 4 * W;                       // [GROUPS, 4 warps, 2, W]
  u64* barriers = (u64*)(sums + (WEIGHTS ? GROUPS * 8 * W : 0));
  const Ring ring = {tiles, barriers, barriers + STAGES};
  u64 *vectors_full = barriers + 2 * STAGES, *vectors_empty = vectors_full + 2;
  u64 *saved_full = vectors_empty + 2, *saved_empty = saved_full + GROUPS;  // of each warpgroup
  const Place place;
  const int network = blockIdx.y, batch = gridDim.x * ROWS, first = blockIdx.x * ROWS + place.group * 64;
  if (threadIdx.x == 0) {
    ring.start();
    for (int i = 0; i < 2; i++) start_barrier(vectors_full + i, 1), start_barrier(vectors_empty + i, GROUPS);
    for (int i = 0; i < GROUPS; i++) start_barrier(saved_full + i, 1), start_barrier(saved_empty + i, 1);
    show_barriers();
  }
  __syncthreads();

  if (threadIdx.x >= COMPUTING) {
    give_registers();
    if (threadIdx.x >= COMPUTING + 32) return;
    weights += (size_t)network * (INPUTS + LAYERS * W) * W;
    heads += (size_t)network * 2 * W * OUTPUTS;
    vectors += (size_t)network * (1 + LAYERS) * 3 * W;
    normed += ((size_t)network * (1 + LAYERS) * batch + blockIdx.x * ROWS) * W;
    int t = 0;
    // Tiles of 64 columns of a matrix with W rows and `wide` columns, by one lane for each eight rows.
    auto fetch_columns = [&](const bf16* from, int wide) {
      for (int c = 0; c < wide / 64; c++, t++) {
        ring.wait_empty(t);
        if (place.lane == 0) announce(ring.full + t % STAGES, 128 * W);
        sync_warp();
        if (place.lane < NJ) copy(ring[t] + place.lane * 512, from + place.lane * wide * 8 + c * 512, 1024, ring.full + t % STAGES);
      }
    };
    fetch_columns(heads, OUTPUTS);
    for (int layer = LAYERS, turn = 0; layer >= 0; layer--, turn++) {
      if (NORM) {
        if (turn >= 2) wait_for(vectors_empty + turn % 2, turn / 2 - 1);
        if (place.lane == 0) {
          announce(vectors_full + turn % 2, 8 * W);
          copy(numbers + turn % 2 * 2 * W, vectors + (layer * 3 + 1) * W, 8 * W, vectors_full + turn % 2);
        }
      }
      for (int group = 0; group < GROUPS; group++) {
        if (turn > 0) wait_for(saved_empty + group, turn - 1);
        if (place.lane == 0) {
          announce(saved_full + group, 128 * W);
          copy(saved + group * 64 * W, normed + ((size_t)layer * batch + group * 64) * W, 128 * W, saved_full + group);
        }
      }
      sync_warp();
      if (layer > 0) fetch_columns(weights + (INPUTS + (layer - 1) * W) * W, W);
    }
    if (D_INPUT)
      for (int c = 0; c < INPUTS / 64; c++, t++) {
        ring.wait_empty(t);
        if (place.lane == 0) {
          announce(ring.full + t % STAGES, 128 * W);
          copy(ring[t], weights + c * 64 * W, 128 * W, ring.full + t % STAGES);
        }
        sync_warp();
      }
    return;
  }

  take_registers();
  float acc[W / 2];
  u32 a[WIDEST / 4];
  gradient += ((size_t)network * batch + first + place.row) * OUTPUT;
  inverse += ((size_t)network * (1 + LAYERS) + LAYERS) * batch + first + place.row;
#if BLOCK
  uint4* skip = (uint4*)(skips + ((size_t)network * batch + first) * (W / 2)) + threadIdx.x % 128;
#endif
#if WEIGHTS
  u32* left = (u32*)(d_output + ((size_t)network * batch + first) * OUTPUTS) + place.word(OJ, 0, 0);
  u32* made = (u32*)(d_products + (((size_t)network * (1 + LAYERS) + LAYERS) * batch + first) * W) + place.word(NJ, 0, 0);
  parts += ((size_t)network * (batch / 64) + first / 64) * (1 + LAYERS) * 2 * W;
#endif
  if (GROUPS == 2 && place.group == 1) pass_turn(place);

  // Through the head.
#pragma unroll
  for (int j = 0; j < OJ; j++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int col = j * 8 + place.lane % 4 * 2;
      const float* at = gradient + h * 8 * OUTPUT + col;
      a[2 * j + h] = pack(col < OUTPUT ? at[0] : 0.0f, col + 1 < OUTPUT ? at[1] : 0.0f);
#if WEIGHTS
      left[(h * OJ + j) * 32] = a[2 * j + h];
#endif
    }
  int t = 0;
  clear(acc);
  wait_turn(place);
  multiply_tiles<W, true, OUTPUTS / 64>(acc, a, ring, t);
  pass_turn(place);

  for (int layer = LAYERS, turn = 0; layer >= 0; layer--, turn++) {
#if BLOCK
    if (layer < LAYERS && layer % BLOCK == 0) {
#pragma unroll
      for (int k = 0; k < NK; k++) {
        const uint4 before = skip[k * 128];
        const u32 words[4] = {before.x, before.y, before.z, before.w};
#pragma unroll
        for (int i = 0; i < 4; i++) acc[8 * k + 2 * i] += unpack(words[i]).x, acc[8 * k + 2 * i + 1] += unpack(words[i]).y;
      }
    }
    if (layer > 0 && layer % BLOCK == 0) {
#pragma unroll
      for (int k = 0; k < NK; k++)
        skip[k * 128] = make_uint4(pack(acc[8 * k], acc[8 * k + 1]), pack(acc[8 * k + 2], acc[8 * k + 3]),
                                   pack(acc[8 * k + 4], acc[8 * k + 5]), pack(acc[8 * k + 6], acc[8 * k + 7]));
    }
#endif
    // Through the activation, and through scale and shift.
    if (NORM) wait_for(vectors_full + turn % 2, turn / 2);
    wait_for(saved_full + place.group, turn);
    const float* by = numbers + turn % 2 * 2 * W + place.lane % 4 * 2;
    const uint4* kept = (const uint4*)(saved + place.group * 64 * W) + place.warp * NK * 32 + place.lane;
    float m1[2] = {0.0f, 0.0f}, m2[2] = {0.0f, 0.0f};
#if WEIGHTS
    float* own = sums + (place.group * 4 + place.warp) * 2 * W + place.lane % 4 * 2;
    // Sums over rows are a product with ones: two blocks, one below the other, on the right, and their sums in the rows above
    // and below. All lanes / 4 have the same.
    const u32 ones[4] = {0x3f803f80u, 0u, 0u, 0x3f803f80u};
    auto write_sums = [&](float* to, u32 low, u32 high) {
      float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      multiply_small(sum, ones, transpose(low), transpose(high));
      *(float2*)to = make_float2(sum[0], sum[1]);
      *(float2*)(to + 8) = make_float2(sum[2], sum[3]);
    };
#endif
#pragma unroll
    for (int k = 0; k < NK; k++) {
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
            m2[h] += d[0] * n.x + d[1] * n.y;
          }
        }
      }
#if WEIGHTS
      if (NORM) {
        write_sums(own + k * 16, pack(scales[0].x, scales[0].y), pack(scales[1].x, scales[1].y));
        write_sums(own + W + k * 16, pack(shifts[0].x, shifts[0].y), pack(shifts[1].x, shifts[1].y));
      }
#endif
    }
    // Through the LayerNorm.
    float inv[2] = {1.0f, 1.0f};
    if (NORM) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int mask = 1; mask < 4; mask *= 2) m1[h] += across(m1[h], mask), m2[h] += across(m2[h], mask);
        inv[h] = inverse[h * 8];
        m1[h] *= -inv[h] * (1.0f / W), m2[h] *= -inv[h] * (1.0f / W);
      }
    }
#pragma unroll
    for (int k = 0; k < NK; k++) {
      u32 words[4] = {0, 0, 0, 0};
      if (NORM) {
        const uint4 four = kept[k * 32];
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float* d = acc + 8 * k + 2 * i;
        const int h = i % 2;
        if (NORM) {
          const float2 n = unpack(words[i]);
          d[0] = d[0] * inv[h] + (n.x * m2[h] + m1[h]), d[1] = d[1] * inv[h] + (n.y * m2[h] + m1[h]);
        }
        a[4 * k + i] = pack(d[0], d[1]);
#if WEIGHTS
        made[(h * NJ + 2 * k + i / 2) * 32] = a[4 * k + i];
#endif
      }
    }
    sync_threads(3 + place.group, 128);
    if (threadIdx.x % 128 == 0) {
      arrive(saved_empty + place.group);
      if (NORM) arrive(vectors_empty + turn % 2);
    }
#if WEIGHTS
    if (NORM) {  // the four warps' sums, of gradients by half of scale and shift
      for (int i = threadIdx.x % 128; i < 2 * W; i += 128) {
        const float* at = sums + place.group * 8 * W + i;
        parts[layer * 2 * W + i] = 0.5f * (at[0] + at[2 * W] + at[4 * W] + at[6 * W]);
      }
      sync_threads(3 + place.group, 128);
    }
    made -= batch * (W / 2);
#endif
    inverse -= batch;
    if (layer == 0) break;
    // Through the product with the layer's weights.
    clear(acc);
    wait_turn(place);
    multiply_tiles<W, true, W / 64>(acc, a, ring, t);
    if (layer > 1 || place.group == 0) pass_turn(place);
  }
#if D_INPUT
  d_input += ((size_t)network * batch + first + place.row) * INPUT;
  for (int c = 0; c < INPUTS / 64; c++, t++) {
    float back[32];
    clear(back);
    ring.wait_full(t);
    start_products();
#pragma unroll
    for (int k = 0; k < NK; k++) multiply<1>(back, a + 4 * k, matrix(ring[t] + k * 128, BLOCK_BYTES, NJ * BLOCK_BYTES));
    end_products();
    wait_products<0>();
    ring.release(t);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int col = c * 64 + j * 8 + place.lane % 4 * 2 + i % 2;
        if (col < INPUT) d_input[i / 2 * 8 * INPUT + col] = back[4 * j + i];
      }
  }
#endif
}

#endif

#ifdef FUSED_WEIGHTS

// Gradients of all weights and vectors: inputs' · gradients of products, summed over the batch. A block of threads makes 64 · GROUPS
// rows of one layer's; the last block of a network adds the parts of the gradients of scales and shifts.

#define ABOVE ((INPUTS + ROWS - 1) / ROWS)  // blocks for the first layer
#define EACH ((W + ROWS - 1) / ROWS)        // for each of the others, and for the head

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
