// Whole networks, forward: see fused.cuh.

#include "fused.cuh"

static_assert(GROUPS == 1 || W <= STAGES * CHUNK, "a turn's tiles, which both release, must fit into the ring");

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
