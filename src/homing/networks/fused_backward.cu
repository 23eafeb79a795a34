// Whole networks, backward: see fused.cuh.

#include "fused.cuh"

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
