// Many updates of contrastive RL in one launch, for Hopper cards: both encoders, InfoNCE, the policy, the temperature, and
// Adam. A cluster of blocks trains one seed; what passes between its blocks goes through L2.
//
// For every 64 transitions of the batch there are two blocks. In a critic's block one warpgroup takes φ(s, a) forward and back,
// the other ψ(g). In a policy's block the first warpgroup takes the policy, φ of its action, and both back. Then all
// warpgroups share the gradients of the weights, 64 rows of a matrix at a time, and move the weights with them: gradients are
// never written.
//
//   forward  ──reps──>  InfoNCE sums  ──sums──>  backward  ──done──>  gradients, Adam  ──moved──>  the next update
//
// Each arrow is a counter in memory that the writers raise and the readers wait for. All blocks of a cluster run at the same
// time, so that waiting ends. Two warps of each block copy weights through rings of tiles, one for each warpgroup.
//
// Products have bfloat16 operands and float32 sums; the heads' weights, and the representations in InfoNCE, are two bfloat16
// numbers each, their sum as exact as 16 bits allow. Parameters and moments are float32.
//
// Set by the compiler's command line:
//   W        width of the layers: 64, 128, 192 or 256
//   INPUTS   width of the inputs, padded to a multiple of 64
//   LAYERS   layers after the first
//   BATCH    transitions: 64, 128, 192 or 256
//   UPDATES  updates of a launch
//   STATE, ACTION   entries of a state and of an action (all of its chunk)
//   STAGES   tiles in flight

#define GROUPS 2
#define TILES (BATCH / 64)
#define BLOCKS (2 * TILES)             // of a cluster
#define WORKERS (2 * BLOCKS)           // warpgroups that compute
#define COMPUTING 256                  // threads that compute; a warpgroup after them copies
#define THREADS 384
#define NJ (W / 8)
#define NK (W / 16)
#define WORDS (W > 128 ? W / 4 : 32)   // registers of an operand
#define OUTPUTS 64                     // of each network, padded
#define CHUNK 32                       // columns of parameters and moments in a stage
#define CHUNK_STRIDE (CHUNK + 8)       // numbers from row to row: those that a warp reads lie in different banks
#define CHUNK_TILE (2 * 3 * 64 * CHUNK_STRIDE)
#define TILE (64 * W > CHUNK_TILE ? 64 * W : CHUNK_TILE)  // elements of a stage
#define RING (STAGES * TILE)
#define HALF_TILE 32                   // transitions of a stage in the gradients of weights

// Parameters of a network, one after the other: weights of all layers, the head's, all biases, the head's.
#define WEIGHT_ROWS (INPUTS + LAYERS * W)
#define HEAD_AT (WEIGHT_ROWS * W)
#define BIAS_AT (HEAD_AT + W * OUTPUTS)
#define BIASES ((1 + LAYERS) * W + OUTPUTS)
#define NET (BIAS_AT + BIASES)
#define PARAMETERS (3 * NET + 4)             // of a seed: φ, ψ, the policy; log α

// What blocks write for each other, in units of two bytes.
#define WEIGHTS_AT 0                                         // [3, WEIGHT_ROWS, W], in blocks: as they are now, rounded
#define HEADS_AT (WEIGHTS_AT + 3 * WEIGHT_ROWS * W)          // [3, 2, W, OUTPUTS], in blocks: the same, and what rounding left of them
#define PRODUCTS_AT (HEADS_AT + 6 * W * OUTPUTS)             // [4, 1 + LAYERS, BATCH, W]: of φ, ψ, the policy, φ of its action; in the order of registers
#define ACTIVATIONS_AT (PRODUCTS_AT + 4 * LAYER)             // [3, 1 + LAYERS, BATCH, W], in blocks
#define D_PRODUCTS_AT (ACTIVATIONS_AT + 3 * LAYER)           // the same
#define D_OUTPUTS_AT (D_PRODUCTS_AT + 3 * LAYER)             // [3, BATCH, OUTPUTS], in blocks
#define REPS_AT (D_OUTPUTS_AT + 3 * BATCH * OUTPUTS)         // [2, BATCH, OUTPUTS] float: φ and ψ
#define SUMS_AT (REPS_AT + 4 * BATCH * OUTPUTS)              // [2, 2, BATCH] float: gradients by the sums of rows and columns, their references
#define DENSITIES_AT (SUMS_AT + 8 * BATCH)                   // [4] float: sums of log π, of each 64 transitions
#define COUNTERS_AT (DENSITIES_AT + 8)                       // [8]
#define SCRATCH (COUNTERS_AT + 56)                           // a multiple of 64
#define LAYER ((1 + LAYERS) * BATCH * W)                     // of all layers of a network

#define ROOT_EPSILON 1e-6f             // as in losses/energies.py
#define LOWEST -80.0f                  // as in losses/log_sums.py
#define TINY 1e-37f
#define LOG_STD_LOW -5.0f              // as in agents/gaussian.py
#define LOG_STD_HALF 3.5f
#define HALF_LOG_2PI 0.9189385332f
#define LOG_2 0.6931471806f
#define B1 0.9f                        // as in Optax, with one minus them
#define B2 0.999f
#define NOT_B1 0.1f
#define NOT_B2 0.001f
#define ADAM_EPSILON 1e-8f

#include "../networks/hopper.cuh"

#ifndef EMULATED

#define CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)

__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// What this thread wrote before is seen by copies and by the matrix units, and what it read before may be overwritten by them.
__device__ __forceinline__ void end_accesses() { asm volatile("fence.proxy.async;" ::: "memory"); }
// Counters that blocks of a cluster share.
__device__ __forceinline__ void count_one(u32* counter) {
  asm volatile("red.release.cluster.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ void wait_until(u32* counter, u32 value) {
  u32 now;
  do asm volatile("ld.acquire.cluster.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
  while (now < value);
}

#endif

typedef TileRing<STAGES, TILE, 1> Ring;

enum { PHI, PSI, POLICY, PHI_OF_POLICY };  // networks; the last keeps products of its own
enum { ALPHA_RATE = 3, MU_SCALE, NU_SCALE, ALPHA = 8, BY_ROWS, BY_COLUMNS, PENALTY, TARGET };  // of `numbers`, after the networks' rates
enum { REPS, SUMS, DONE, MOVED = DONE + 3, COUNTERS };

__device__ __forceinline__ void sync_group(const Place& place) { sync_threads(3 + place.group, 128); }

// A warpgroup has written what `counter` stands for.
__device__ __forceinline__ void finish(const Place& place, u32* counter) {
  end_accesses();
  sync_group(place);
  if (threadIdx.x % 128 == 0) count_one(counter);
}
__device__ __forceinline__ void begin(const Place& place, u32* counter, u32 value) {
  if (threadIdx.x % 128 == 0) wait_until(counter, value);
  sync_warp();
  sync_group(place);
}

__device__ __forceinline__ float over_quad(float x) {
  x += across(x, 1);
  return x + across(x, 2);
}

// Which gradient is whose: 64 rows of the weights of a layer, or of a head, as an item. Items of ψ come first, whose blocks are
// ready first; heads, which take a quarter of the time, come last.
#define LARGE (WEIGHT_ROWS / 64)       // items of a network
#define SMALL (W / 64)
#define ITEMS (3 * (LARGE + SMALL))

struct Item {
  int net, row, layer;  // `row`: the first, of the layer's; layer 1 + LAYERS is the head
  __device__ __forceinline__ Item(int i) {
    const bool large = i < 3 * LARGE;
    const int order = large ? i / LARGE : (i - 3 * LARGE) / SMALL, part = large ? i % LARGE : (i - 3 * LARGE) % SMALL;
    net = order == 0 ? PSI : order == 1 ? PHI : POLICY;
    layer = !large ? 1 + LAYERS : part < INPUTS / 64 ? 0 : 1 + (part * 64 - INPUTS) / W;
    row = layer == 0 || !large ? part * 64 : (part * 64 - INPUTS) % W;
  }
  __device__ __forceinline__ bool head() const { return layer == 1 + LAYERS; }
  // First of its parameters.
  __device__ __forceinline__ int at() const {
    const int above = layer == 0 ? 0 : INPUTS + (layer - 1) * W;
    return net * NET + (head() ? HEAD_AT + row * OUTPUTS : (above + row) * W);
  }
  __device__ __forceinline__ int bias_at() const { return net * NET + BIAS_AT + layer * W; }
};

// Warpgroups in the order in which they have time: those without a part in the batch, critics, policies.
__device__ __forceinline__ int worker_of(int rank, int group) {
  return rank < TILES ? TILES + 2 * rank + group : group == 1 ? rank - TILES : 2 * TILES + rank;
}

// Steps of Adam: the parameter, which becomes `p`, and its moments.
struct Adam {
  float rate, mu_scale, nu_scale;
  __device__ __forceinline__ void operator()(float& p, float& m, float& v, float g) const {
    m = NOT_B1 * g + B1 * m;
    v = NOT_B2 * (g * g) + B2 * v;
    p -= rate * (m * mu_scale / (sqrtf(v * nu_scale) + ADAM_EPSILON));
  }
};

// The gradient of an item, N columns wide, and the step that it makes. after: parameters and moments; weights, rest: where the
// rounded weights are, and what rounding leaves of them (of heads).
template <int N, bool HEAD>
__device__ __forceinline__ void move_item(
    const Place& place, const Ring& ring, int& t, const Item& item, const Adam& adam, float* after, u32* weights, u32* rest) {
  constexpr int SHARE = N / 32;  // blocks of the columns whose sums a warp makes, for the bias
  const bool biased = item.row == 0;
  float acc[N / 2], sums[2 * SHARE];
  clear(acc);
  clear(sums);
  for (int c = 0; c < BATCH / HALF_TILE; c++, t++) {
    ring.wait_full(t);
    const bf16 *right = ring[t], *left = right + HALF_TILE * N;
    start_products();
#pragma unroll
    for (int k = 0; k < 2; k++)
      multiply(acc, matrix(left + k * 16 * 64, 8 * BLOCK_BYTES, BLOCK_BYTES), matrix(right + k * 16 * N, N / 8 * BLOCK_BYTES, BLOCK_BYTES));
    end_products();
    if (biased) {
#pragma unroll
      for (int i = 0; i < 4 * SHARE; i++) {
        const float2 value = unpack(((const u32*)right)[(i / SHARE * (N / 8) + place.warp * SHARE + i % SHARE) * 32 + place.lane]);
        sums[i % SHARE * 2] += value.x, sums[i % SHARE * 2 + 1] += value.y;
      }
      end_accesses();
      sync_group(place);  // all warps have read the tile before the next one releases it
    }
    if (c > 0) wait_products<1>(), ring.release(t - 1);
  }
  wait_products<0>();
  ring.release(t - 1);
  if (biased) {
#pragma unroll
    for (int i = 0; i < 2 * SHARE; i++)
#pragma unroll
      for (int mask = 4; mask < 32; mask *= 2) sums[i] += across(sums[i], mask);
    float* to = after + item.bias_at() + place.warp * SHARE * 8 + place.lane * 2;
    if (place.lane < 4)
#pragma unroll
      for (int i = 0; i < 2 * SHARE; i++) {
        float* at = to + i / 2 * 8 + i % 2;
        adam(at[0], at[PARAMETERS], at[2 * PARAMETERS], sums[i]);
      }
  }
  after += item.at() + place.row * N + place.lane % 4 * 2;
#pragma unroll
  for (int c = 0; c < N / CHUNK; c++, t++) {
    ring.wait_full(t);
    const float* from = (const float*)ring[t] + place.row * CHUNK_STRIDE + place.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < CHUNK / 4; i++) {
      const int j = c * (CHUNK / 8) + i / 2, h = i % 2;
      const float* at = from + h * 8 * CHUNK_STRIDE + i / 2 * 8;
      float2 p = *(const float2*)at, m = *(const float2*)(at + 64 * CHUNK_STRIDE), v = *(const float2*)(at + 128 * CHUNK_STRIDE);
      adam(p.x, m.x, v.x, acc[4 * j + 2 * h]), adam(p.y, m.y, v.y, acc[4 * j + 2 * h + 1]);
      float* to = after + h * 8 * N + j * 8;
      *(float2*)to = p, *(float2*)(to + PARAMETERS) = m, *(float2*)(to + 2 * PARAMETERS) = v;
      const u32 high = pack(p.x, p.y);
      const int word = place.word(N / 8, j, h);
      weights[word] = high;
      if (HEAD) rest[word] = pack(p.x - unpack(high).x, p.y - unpack(high).y);
    }
    end_accesses();
    sync_group(place);
    ring.release(t);
  }
}

// A warpgroup's part in the updates of a seed, or that of the warp that copies for it.

struct Part {
  // The seed's arrays, see the kernel's parameters and SCRATCH.
  const bf16* inputs;
  const float *noises, *steps, *constants;
  float* after;
  bf16 *weights, *heads, *products, *activations, *d_products, *d_outputs;
  float *reps, *sums, *densities;
  u32* counters;
  // The block's shared memory.
  float* biases;    // [3, BIASES]
  float* others;    // [2, 3, BATCH]: of the other side: squared norms, gradients, references
  float* plans;     // [64, 2, ACTION]: of the policy: x with a = tanh x, and its head's second half; then their gradients
  float* pulls;     // [64, ACTION]: gradients by actions
  float* partial;   // [4]
  float* numbers;   // [16]: those of the update, α, constants
  Ring ring;
  u64* ring_free;   // shows that InfoNCE is done with the ring's memory
  // Where it stands.
  Place place;
  bool critic;
  int owner, worker, passes;  // `owner`: the warpgroup whose ring it is; `passes`: how often it goes through a network
  int first;                  // of the block's 64 transitions
  int t;                      // tiles that were taken from the ring, or put into it

  __device__ __forceinline__ int network(int pass, bool back) const {
    return critic ? owner : (pass == 0) == back ? PHI : POLICY;
  }
  __device__ __forceinline__ int row() const { return first + place.row; }
  __device__ __forceinline__ int col() const { return place.lane % 4 * 2; }
  __device__ __forceinline__ int thread() const { return threadIdx.x % 128; }
  __device__ __forceinline__ const float* noise(int u) const { return noises + ((size_t)u * BATCH + first) * ACTION; }

  // The warp that copies.

  __device__ __forceinline__ void fetch(const bf16* from, u32 bytes) {
    ring.wait_empty(t);
    if (place.lane == 0) announce(ring.full + t % STAGES, bytes), copy(ring[t], from, bytes, ring.full + t % STAGES);
    sync_warp();
    t++;
  }
  // 64 columns of a matrix with W rows and `wide` columns, by one lane for each eight rows.
  __device__ __forceinline__ void fetch_columns(const bf16* from, int wide) {
    ring.wait_empty(t);
    if (place.lane == 0) announce(ring.full + t % STAGES, 128 * W);
    sync_warp();
    if (place.lane < NJ) copy(ring[t] + place.lane * 512, from + place.lane * wide * 8, 1024, ring.full + t % STAGES);
    t++;
  }
  // Until other blocks have written what is copied next.
  __device__ __forceinline__ void await(int counter, u32 value) const {
    if (place.lane == 0) wait_until(counters + counter, value);
    sync_warp();
    end_accesses();
  }

  __device__ __forceinline__ void copy_forward(int net) {
    for (int c = 0; c < WEIGHT_ROWS / 64; c++) fetch(weights + (net * WEIGHT_ROWS + c * 64) * W, 128 * W);
    for (int c = 0; c < 2 * (W / 64); c++) fetch(heads + (net * 2 * W + c * 64) * OUTPUTS, 128 * OUTPUTS);
  }
  __device__ __forceinline__ void copy_backward(int net, bool to_action) {
    const bf16* from = weights + net * WEIGHT_ROWS * W;
    fetch_columns(heads + net * 2 * W * OUTPUTS, OUTPUTS);
    for (int layer = LAYERS; layer > 0; layer--)
      for (int c = 0; c < W / 64; c++) fetch_columns(from + (INPUTS + (layer - 1) * W) * W + c * 512, W);
    if (to_action)
      for (int c = STATE / 64; c <= (STATE + ACTION - 1) / 64; c++) fetch(from + c * 64 * W, 128 * W);
  }
  __device__ __forceinline__ void copy_item(int u, const Item& item) {
    const int wide = item.head() ? OUTPUTS : W, above = item.layer == 0 ? INPUTS : W;
    const bf16* left = item.layer == 0 ? inputs + ((size_t)u * 3 + item.net) * BATCH * INPUTS
                                       : activations + (item.net * (1 + LAYERS) + item.layer - 1) * BATCH * W;
    const bf16* right = item.head() ? d_outputs + item.net * BATCH * OUTPUTS
                                    : d_products + (item.net * (1 + LAYERS) + item.layer) * BATCH * W;
    for (int c = 0; c < BATCH / HALF_TILE; c++, t++) {
      ring.wait_empty(t);
      if (place.lane == 0) {
        announce(ring.full + t % STAGES, 2 * HALF_TILE * (wide + 64));
        copy(ring[t], right + c * HALF_TILE * wide, 2 * HALF_TILE * wide, ring.full + t % STAGES);
      }
      sync_warp();
      if (place.lane < HALF_TILE / 8)
        copy(ring[t] + HALF_TILE * wide + place.lane * 512,
             left + ((c * (HALF_TILE / 8) + place.lane) * above + item.row) * 8, 1024, ring.full + t % STAGES);
    }
    for (int c = 0; c < wide / CHUNK; c++, t++) {
      ring.wait_empty(t);
      if (place.lane == 0) announce(ring.full + t % STAGES, 3 * 64 * 4 * CHUNK);
      sync_warp();
      for (int i = place.lane; i < 3 * 64; i += 32)
        copy((float*)ring[t] + i * CHUNK_STRIDE, after + i / 64 * PARAMETERS + item.at() + i % 64 * wide + c * CHUNK, 4 * CHUNK,
             ring.full + t % STAGES);
    }
  }
  // In the order in which the warpgroup takes it.
  __device__ __forceinline__ void copy_update(int u) {
    await(MOVED, u * WORKERS);
    for (int i = 0; i < passes; i++) copy_forward(network(i, false));
    if (critic) wait_for(ring_free, u);
    for (int i = 0; i < passes; i++) copy_backward(network(i, true), !critic && i == 0);
    for (int i = worker; i < ITEMS; i += WORKERS) {
      const Item item(i);
      await(DONE + item.net, (u + 1) * TILES);
      if (item.net == PHI) await(DONE + POLICY, (u + 1) * TILES);  // the policy's gradient goes through φ
      copy_item(u, item);
    }
  }

  // The warpgroup that computes.

  __device__ __forceinline__ void load_numbers(int u) const {
    for (int i = threadIdx.x; i < 3 * BIASES; i += COMPUTING) biases[i] = after[i / BIASES * NET + BIAS_AT + i % BIASES];
    if (threadIdx.x < 8) numbers[threadIdx.x] = steps[u * 8 + threadIdx.x];
    if (threadIdx.x < 4) numbers[BY_ROWS + threadIdx.x] = constants[threadIdx.x];
    if (threadIdx.x == 0) numbers[ALPHA] = expf(after[3 * NET]);
    sync_threads(1, COMPUTING);
  }

  // A network's outputs. `slot`: where its products are kept; that of φ of the policy's action has no gradients of weights.
  __device__ __forceinline__ void forward(int u, int net, int slot, float (&made)[32]) {
    float acc[W / 2];
    u32 a[WORDS];
    const float* bias = biases + net * BIASES + col();
    const u32* from = (const u32*)(inputs + (((size_t)u * 3 + net) * BATCH + first) * INPUTS) + place.word(INPUTS / 8, 0, 0);
    clear(acc);
    for (int c = 0; c < INPUTS / 64; c++) {
#pragma unroll
      for (int k = 0; k < 16; k++) {
        a[k] = from[(k % 2 * (INPUTS / 8) + c * 8 + k / 2) * 32];
        const int entry = c * 64 + k / 2 * 8 + col() - STATE;  // of the action
        if (slot == PHI_OF_POLICY && entry > -2 && entry < ACTION) {  // the policy's own, in place of the stored one
          const float* plan = plans + (place.row + k % 2 * 8) * 2 * ACTION + entry;
          const float2 stored = unpack(a[k]);
          a[k] = pack(entry < 0 ? stored.x : tanhf(plan[0]), entry + 1 < ACTION ? tanhf(plan[1]) : stored.y);
        }
      }
      multiply_tiles<W, false, 1>(acc, a, ring, t);
    }
    uint4* kept = (uint4*)(products + ((size_t)slot * (1 + LAYERS) * BATCH + first) * W) + place.warp * NK * 32 + place.lane;
    u32* activated = (u32*)(activations + ((size_t)net * (1 + LAYERS) * BATCH + first) * W) + place.word(NJ, 0, 0);
    for (int layer = 0;; layer++) {
#pragma unroll
      for (int j = 0; j < NJ; j++) {
        const float2 b = *(const float2*)(bias + layer * W + j * 8);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float* z = acc + 4 * j + 2 * h;
          z[0] += b.x, z[1] += b.y;
          a[2 * j + h] = pack(z[0], z[1]);
          // swish(z) = z σ(z) = v (1 + tanh v) with v = z / 2
          const float2 v = make_float2(0.5f * z[0], 0.5f * z[1]);
          z[0] = v.x * tanh_of(v.x) + v.x, z[1] = v.y * tanh_of(v.y) + v.y;
        }
        if (j % 2) kept[j / 2 * 32] = make_uint4(a[2 * j - 2], a[2 * j - 1], a[2 * j], a[2 * j + 1]);
      }
#pragma unroll
      for (int w = 0; w < W / 4; w++) {
        a[w] = pack(acc[2 * w], acc[2 * w + 1]);
        if (slot != PHI_OF_POLICY) activated[(w % 2 * NJ + w / 2) * 32] = a[w];
      }
      if (layer == LAYERS) break;
      kept += BATCH * (W / 8), activated += BATCH * (W / 2);
      clear(acc);
      multiply_tiles<W, false, W / 64>(acc, a, ring, t);
    }
    clear(made);
    for (int part = 0; part < 2; part++)
#pragma unroll
      for (int c = 0; c < W / 64; c++, t++) {
        ring.wait_full(t);
        multiply_tile<OUTPUTS, false>(made, a + 16 * c, ring[t]);
        wait_products<0>();
        ring.release(t);
      }
#pragma unroll
    for (int w = 0; w < 32; w++) made[w] += bias[(1 + LAYERS) * W + w / 4 * 8 + w % 2];
  }

  // From the gradient of a network's outputs, as an operand in `a`, that of its first layer's products, as another.
  __device__ __forceinline__ void backward(int net, int slot, u32 (&a)[WORDS]) {
    float acc[W / 2];
    if (slot != PHI_OF_POLICY) {
      u32* to = (u32*)(d_outputs + (net * BATCH + first) * OUTPUTS) + place.word(OUTPUTS / 8, 0, 0);
#pragma unroll
      for (int w = 0; w < 16; w++) to[(w % 2 * (OUTPUTS / 8) + w / 2) * 32] = a[w];
    }
    clear(acc);
    multiply_tiles<W, true, 1>(acc, a, ring, t);
    for (int layer = LAYERS;; layer--) {
      const size_t at = ((size_t)slot * (1 + LAYERS) + layer) * BATCH + first;
      const uint4* kept = (const uint4*)(products + at * W) + place.warp * NK * 32 + place.lane;
      u32* to = (u32*)(d_products + at * W) + place.word(NJ, 0, 0);
#pragma unroll
      for (int k = 0; k < NK; k++) {
        const uint4 four = kept[k * 32];
        const u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
          float* d = acc + 8 * k + 2 * w;
          const float2 z = unpack(words[w]);
          // The derivative of v (1 + tanh v) by z = 2 v is (1 + tanh v + v (1 − tanh² v)) / 2.
          const float2 v = make_float2(0.5f * z.x, 0.5f * z.y), s = make_float2(tanh_of(v.x), tanh_of(v.y));
          d[0] *= 0.5f * (1.0f + s.x + v.x * (1.0f - s.x * s.x));
          d[1] *= 0.5f * (1.0f + s.y + v.y * (1.0f - s.y * s.y));
          a[4 * k + w] = pack(d[0], d[1]);
          if (slot != PHI_OF_POLICY) to[(w % 2 * NJ + 2 * k + w / 2) * 32] = a[4 * k + w];
        }
      }
      if (layer == 0) return;
      clear(acc);
      multiply_tiles<W, true, W / 64>(acc, a, ring, t);
    }
  }

  // φ or ψ, for all blocks.
  __device__ __forceinline__ void show_representations(int net, const float (&made)[32]) const {
    float* to = reps + (net * BATCH + row()) * OUTPUTS + col();
#pragma unroll
    for (int w = 0; w < 32; w += 2) *(float2*)(to + w / 2 % 2 * 8 * OUTPUTS + w / 4 * 8) = make_float2(made[w], made[w + 1]);
    finish(place, counters + REPS);
  }

  // Samples of the policy, and their log-densities.
  __device__ __forceinline__ void sample_actions(const float* noise, const float (&made)[32]) const {
#pragma unroll
    for (int w = 0; w < 32; w++) {
      const int entry = w / 4 * 8 + col() + w % 2;
      if (entry < 2 * ACTION) plans[(place.row + w / 2 % 2 * 8) * 2 * ACTION + entry] = made[w];
    }
    sync_group(place);
    float density = 0.0f;
    for (int i = thread(); i < 64 * ACTION; i += 128) {
      float* plan = plans + i / ACTION * 2 * ACTION + i % ACTION;
      const float n = noise[i], log_std = LOG_STD_LOW + LOG_STD_HALF * (tanhf(plan[ACTION]) + 1.0f);
      const float x = plan[0] + expf(log_std) * n;
      // log(1 − tanh² x) = 2 (log 2 − x − softplus(−2 x))
      const float slope = 2.0f * (LOG_2 - x - (fmaxf(-2.0f * x, 0.0f) + log1pf(expf(-fabsf(2.0f * x)))));
      density += -0.5f * n * n - log_std - HALF_LOG_2PI - slope;
      plan[0] = x;
    }
#pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) density += across(density, mask);
    if (place.lane == 0) partial[place.warp] = density;
    sync_group(place);
    if (thread() == 0) densities[first / 64] = partial[0] + partial[1] + partial[2] + partial[3];
  }

  // The gradient of InfoNCE by this side's representations, `made`: φ with rows of logits, or ψ with columns.
  __device__ __forceinline__ void infonce_gradient(int u, float (&made)[32], u32 (&a)[WORDS]) const {
    begin(place, counters + REPS, (u + 1) * 2 * TILES);
    const int side = owner;
    const float *theirs = reps + (1 - side) * BATCH * OUTPUTS, *partner = theirs + row() * OUTPUTS + col();
    const float* shift = reps + BATCH * OUTPUTS + col();  // ψ₀: distances do not change by it, and products lose less
    float *norms = others + side * 3 * BATCH, *gradients = norms + BATCH, *references = gradients + BATCH;

    // The other side as two right operands [BATCH, OUTPUTS], in blocks, in the ring's memory.
    bf16 *high = ring.tiles, *low = high + BATCH * OUTPUTS;
    for (int block = place.warp; block < BATCH / 8; block += 4) {
      const float* from = theirs + (block * 8 + place.lane / 4) * OUTPUTS + col();
      float norm = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float2 at = *(const float2*)(from + j * 8), by = *(const float2*)(shift + j * 8);
        const float2 value = make_float2(at.x - by.x, at.y - by.y);
        const u32 word = pack(value.x, value.y);
        ((u32*)high)[(block * 8 + j) * 32 + place.lane] = word;
        ((u32*)low)[(block * 8 + j) * 32 + place.lane] = pack(value.x - unpack(word).x, value.y - unpack(word).y);
        norm += value.x * value.x + value.y * value.y;
      }
      norm = over_quad(norm);
      if (place.lane % 4 == 0) norms[block * 8 + place.lane / 4] = norm;
    }
    end_accesses();

    // This side as two left operands; the logits of the positives.
    float norm[2] = {0.0f, 0.0f}, positive[2] = {0.0f, 0.0f}, reference[2];
#pragma unroll
    for (int w = 0; w < 32; w += 2) {
      const int h = w / 2 % 2;
      const float2 by = *(const float2*)(shift + w / 4 * 8), at = *(const float2*)(partner + h * 8 * OUTPUTS + w / 4 * 8);
      const float2 apart = make_float2(made[w] - at.x, made[w + 1] - at.y);
      positive[h] += apart.x * apart.x + apart.y * apart.y;
      made[w] -= by.x, made[w + 1] -= by.y;
      norm[h] += made[w] * made[w] + made[w + 1] * made[w + 1];
      a[w / 2] = pack(made[w], made[w + 1]);
      a[16 + w / 2] = pack(made[w] - unpack(a[w / 2]).x, made[w + 1] - unpack(a[w / 2]).y);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      norm[h] = over_quad(norm[h]);
      positive[h] = -sqrtf(over_quad(positive[h]) + ROOT_EPSILON);
      reference[h] = fmaxf(positive[h], LOWEST);
    }
    sync_group(place);

    // Logits with 64 of the others. A positive can be so close that its distance cannot be computed from products.
    float logits[32];
    auto other = [&](int c, int w) { return c * 64 + w / 4 * 8 + col() + w % 2; };
    auto compute_logits = [&](int c) {
      clear(logits);
      multiply_tile<64, true>(logits, a, high + c * 64 * OUTPUTS);
      multiply_tile<64, true>(logits, a, low + c * 64 * OUTPUTS);
      multiply_tile<64, true>(logits, a + 16, high + c * 64 * OUTPUTS);
      wait_products<0>();
#pragma unroll
      for (int w = 0; w < 32; w++) {
        const int h = w / 2 % 2, i = other(c, w);
        const float f = -sqrtf(fmaxf(norm[h] + norms[i] - 2.0f * logits[w], 0.0f) + ROOT_EPSILON);
        logits[w] = i == row() + 8 * h ? positive[h] : f;
      }
    };

    // Gradients by the sums Σ_j e^{f_ij − reference}, which the other side needs too.
    float sum[2] = {0.0f, 0.0f}, gradient[2];
    for (int c = 0; c < TILES; c++) {
      compute_logits(c);
#pragma unroll
      for (int w = 0; w < 32; w++) sum[w / 2 % 2] += expf(logits[w] - reference[w / 2 % 2]);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      sum[h] = fmaxf(over_quad(sum[h]), TINY);
      const float log_sum = reference[h] + logf(sum[h]);
      gradient[h] = side == PHI ? numbers[BY_ROWS] + 2.0f * numbers[PENALTY] * log_sum : numbers[BY_COLUMNS];
      gradient[h] /= BATCH * sum[h];
      float* to = sums + side * 2 * BATCH + row() + 8 * h;
      if (place.lane % 4 == 0) to[0] = gradient[h], to[BATCH] = reference[h];
    }
    finish(place, counters + SUMS);
    begin(place, counters + SUMS, (u + 1) * 2 * TILES);
    for (int i = thread(); i < 2 * BATCH; i += 128) gradients[i] = sums[(1 - side) * 2 * BATCH + i];
    sync_group(place);

    // The gradient of f_ij by this side's i is (j − i) / |f_ij|; that of the positive is computed from the difference.
    float pulled[2] = {0.0f, 0.0f}, own[2], all[32];
    clear(all);
    for (int c = 0; c < TILES; c++) {
      u32 pull[16];
      compute_logits(c);
#pragma unroll
      for (int w = 0; w < 32; w++) {
        const int h = w / 2 % 2, i = other(c, w);
        const float on = gradient[h] * expf(logits[w] - reference[h]) + gradients[i] * expf(logits[w] - references[i]);
        logits[w] = i == row() + 8 * h ? 0.0f : on / -logits[w];
      }
#pragma unroll
      for (int w = 0; w < 16; w++) {
        pull[w] = pack(logits[2 * w], logits[2 * w + 1]);
        pulled[w % 2] += unpack(pull[w]).x + unpack(pull[w]).y;
      }
      multiply_tile<OUTPUTS, false>(all, pull, high + c * 64 * OUTPUTS);
      multiply_tile<OUTPUTS, false>(all, pull, low + c * 64 * OUTPUTS);
      wait_products<0>();
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      pulled[h] = over_quad(pulled[h]);
      const float on = (gradient[h] + gradients[row() + 8 * h]) * expf(positive[h] - reference[h]);
      own[h] = (on - (numbers[BY_ROWS] + numbers[BY_COLUMNS]) / BATCH) / -positive[h];
    }
    const float* self = reps + (side * BATCH + row()) * OUTPUTS + col();
#pragma unroll
    for (int w = 0; w < 32; w += 2) {
      const int h = w / 2 % 2, at = h * 8 * OUTPUTS + w / 4 * 8;
      const float2 by = *(const float2*)(shift + w / 4 * 8), their = *(const float2*)(partner + at), mine = *(const float2*)(self + at);
      const float x = all[w] - pulled[h] * (mine.x - by.x) + own[h] * (their.x - mine.x);
      const float y = all[w + 1] - pulled[h] * (mine.y - by.y) + own[h] * (their.y - mine.y);
      a[w / 2] = pack(x, y);
    }
    end_accesses();
    sync_group(place);
    if (thread() == 0) arrive(ring_free);
  }

  // The gradient of mean(−f(s, a, g)) by φ, `made`.
  __device__ __forceinline__ void value_gradient(int u, float (&made)[32], u32 (&a)[WORDS]) const {
    begin(place, counters + REPS, (u + 1) * 2 * TILES);
    const float* psi = reps + (BATCH + row()) * OUTPUTS + col();
    float scale[2] = {0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < 32; w += 2) {
      const float2 at = *(const float2*)(psi + w / 2 % 2 * 8 * OUTPUTS + w / 4 * 8);
      made[w] -= at.x, made[w + 1] -= at.y;
      scale[w / 2 % 2] += made[w] * made[w] + made[w + 1] * made[w + 1];
    }
#pragma unroll
    for (int h = 0; h < 2; h++) scale[h] = 1.0f / (BATCH * sqrtf(over_quad(scale[h]) + ROOT_EPSILON));
#pragma unroll
    for (int w = 0; w < 32; w += 2) a[w / 2] = pack(made[w] * scale[w / 2 % 2], made[w + 1] * scale[w / 2 % 2]);
  }

  // From the gradient of φ's first products to that of the policy's head.
  __device__ __forceinline__ void policy_gradient(const float* noise, u32 (&a)[WORDS]) {
    for (int c = STATE / 64; c <= (STATE + ACTION - 1) / 64; c++, t++) {
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
      for (int w = 0; w < 32; w++) {
        const int entry = c * 64 + w / 4 * 8 + col() + w % 2 - STATE;
        if (entry >= 0 && entry < ACTION) pulls[(place.row + w / 2 % 2 * 8) * ACTION + entry] = back[w];
      }
    }
    sync_group(place);
    for (int i = thread(); i < 64 * ACTION; i += 128) {
      float* plan = plans + i / ACTION * 2 * ACTION + i % ACTION;
      const float tanh_x = tanhf(plan[0]), squashed = tanhf(plan[ACTION]), density = numbers[ALPHA] / BATCH;
      const float std = expf(LOG_STD_LOW + LOG_STD_HALF * (squashed + 1.0f));
      const float by_x = pulls[i] * (1.0f - tanh_x * tanh_x) + 2.0f * density * tanh_x;
      plan[0] = by_x;
      plan[ACTION] = (by_x * std * noise[i] - density) * LOG_STD_HALF * (1.0f - squashed * squashed);
    }
    sync_group(place);
#pragma unroll
    for (int w = 0; w < 16; w++) {
      const int entry = w / 2 * 8 + col();
      const float* plan = plans + (place.row + w % 2 * 8) * 2 * ACTION + entry;
      a[w] = pack(entry < 2 * ACTION ? plan[0] : 0.0f, entry + 1 < 2 * ACTION ? plan[1] : 0.0f);
    }
  }

  __device__ __forceinline__ void move_weights(int u) {
    for (int i = worker; i < ITEMS; i += WORKERS) {
      const Item item(i);
      const Adam adam = {numbers[item.net], numbers[MU_SCALE], numbers[NU_SCALE]};
      if (item.head()) {
        u32* to = (u32*)(heads + (item.net * 2 * W + item.row) * OUTPUTS);
        move_item<OUTPUTS, true>(place, ring, t, item, adam, after, to, to + W * OUTPUTS / 2);
      } else {
        u32* to = (u32*)(weights + item.net * WEIGHT_ROWS * W + item.at() - item.net * NET);
        move_item<W, false>(place, ring, t, item, adam, after, to, to);
      }
    }
    if (worker == 0 && thread() == 0) {
      wait_until(counters + DONE + POLICY, (u + 1) * TILES);
      float density = 0.0f, *at = after + 3 * NET;
      for (int i = 0; i < TILES; i++) density += densities[i];
      const Adam adam = {numbers[ALPHA_RATE], numbers[MU_SCALE], numbers[NU_SCALE]};
      adam(at[0], at[PARAMETERS], at[2 * PARAMETERS], numbers[ALPHA] * (-density / BATCH - numbers[TARGET]));
    }
    finish(place, counters + MOVED);
  }

  __device__ __forceinline__ void update(int u) {
    float made[32];
    u32 a[WORDS];
    if (u > 0) begin(place, counters + MOVED, u * WORKERS);
    load_numbers(u);
    for (int i = 0; i < passes; i++) {
      const int net = network(i, false);
      forward(u, net, critic || i == 0 ? net : PHI_OF_POLICY, made);
      if (critic) show_representations(net, made);
      else if (i == 0) sample_actions(noise(u), made);
    }
    if (critic) infonce_gradient(u, made, a);
    else if (passes > 0) value_gradient(u, made, a);
    for (int i = 0; i < passes; i++) {
      const int net = network(i, true), slot = critic || i > 0 ? net : PHI_OF_POLICY;
      backward(net, slot, a);
      if (slot == PHI_OF_POLICY) policy_gradient(noise(u), a);
      else finish(place, counters + DONE + net);
    }
    move_weights(u);
  }
};

// The state before the updates, and its weights rounded, by all threads of a cluster.

__device__ __forceinline__ void start(const float* before, float* after, u32* weights, u32* heads) {
  const int thread = blockIdx.x * THREADS + threadIdx.x, all = BLOCKS * THREADS;
  for (int i = thread; i < 3 * PARAMETERS; i += all) after[i] = before[i];
  for (int i = thread; i < 3 * WEIGHT_ROWS * W / 2; i += all) {
    const int net = i / (WEIGHT_ROWS * W / 2), word = i % (WEIGHT_ROWS * W / 2);
    const int row = word / (8 * W / 2) * 8 + word % 32 / 4, col = word / 32 % NJ * 8 + word % 4 * 2;
    const float2 value = *(const float2*)(before + net * NET + row * W + col);
    weights[i] = pack(value.x, value.y);
  }
  for (int i = thread; i < 3 * W * OUTPUTS / 2; i += all) {
    const int net = i / (W * OUTPUTS / 2), word = i % (W * OUTPUTS / 2);
    const int row = word / 256 * 8 + word % 32 / 4, col = word / 32 % 8 * 8 + word % 4 * 2;
    const float2 value = *(const float2*)(before + net * NET + HEAD_AT + row * OUTPUTS + col);
    const u32 high = pack(value.x, value.y);
    u32* to = heads + net * W * OUTPUTS + word;
    to[0] = high, to[W * OUTPUTS / 2] = pack(value.x - unpack(high).x, value.y - unpack(high).y);
  }
}

extern "C" __global__ void CLUSTER(BLOCKS) __launch_bounds__(THREADS, 1) crl_updates(
    const bf16* __restrict__ inputs,      // [seeds, UPDATES, 3, BATCH, INPUTS], in blocks: of φ, ψ and the policy
    const float* __restrict__ noises,     // [seeds, UPDATES, BATCH, ACTION]
    const float* __restrict__ steps,      // [seeds, UPDATES, 8]: learning rates of φ, ψ, the policy and α; scales of Adam's moments
    const float* __restrict__ constants,  // [seeds, 4]: weights of rows, columns and the penalty; target entropy
    const float* __restrict__ before,     // [seeds, 3, PARAMETERS]: parameters and Adam's moments
    // Written and read again by other blocks: neither is constant.
    float* after,   // [seeds, 3, PARAMETERS]
    bf16* scratch   // [seeds, SCRATCH]
) {
  SHARED
  const int rank = blockIdx.x, seed = blockIdx.y;
  Part part;
  const Place& place = part.place;
  part.inputs = inputs + (size_t)seed * UPDATES * 3 * BATCH * INPUTS;
  part.noises = noises + (size_t)seed * UPDATES * BATCH * ACTION;
  part.steps = steps + (size_t)seed * UPDATES * 8;
  part.constants = constants + seed * 4;
  part.after = after + (size_t)seed * 3 * PARAMETERS;
  scratch += (size_t)seed * SCRATCH;
  part.weights = scratch + WEIGHTS_AT, part.heads = scratch + HEADS_AT, part.products = scratch + PRODUCTS_AT;
  part.activations = scratch + ACTIVATIONS_AT, part.d_products = scratch + D_PRODUCTS_AT;
  part.d_outputs = scratch + D_OUTPUTS_AT, part.reps = (float*)(scratch + REPS_AT), part.sums = (float*)(scratch + SUMS_AT);
  part.densities = (float*)(scratch + DENSITIES_AT), part.counters = (u32*)(scratch + COUNTERS_AT);
  bf16* tiles = (bf16*)shared;  // [2, RING]
  part.biases = (float*)(tiles + 2 * RING);
  part.others = part.biases + 3 * BIASES, part.plans = part.others + 6 * BATCH, part.pulls = part.plans + 128 * ACTION;
  part.partial = part.pulls + 64 * ACTION, part.numbers = part.partial + 4;
  u64* barriers = (u64*)(part.numbers + 16);  // [2, 2 · STAGES + 1]

  const bool copies = threadIdx.x >= COMPUTING;
  part.critic = rank < TILES, part.first = rank % TILES * 64, part.t = 0;
  part.owner = copies ? place.warp % 2 : place.group;
  part.worker = worker_of(rank, part.owner), part.passes = part.critic ? 1 : part.owner == 0 ? 2 : 0;
  u64* own = barriers + part.owner * (2 * STAGES + 1);
  part.ring = {tiles + part.owner * RING, own, own + STAGES};
  part.ring_free = own + 2 * STAGES;
  if (threadIdx.x < 2) {
    u64* at = barriers + threadIdx.x * (2 * STAGES + 1);
    Ring{tiles, at, at + STAGES}.start();
    start_barrier(at + 2 * STAGES, 1);
    show_barriers();
  }
  start(before + (size_t)seed * 3 * PARAMETERS, part.after, (u32*)part.weights, (u32*)part.heads);
  if (rank == 0 && threadIdx.x < COUNTERS) part.counters[threadIdx.x] = 0;
  end_accesses();
  sync_cluster();

  if (copies) {
    give_registers();
    if (place.warp >= 2) return;
    for (int u = 0; u < UPDATES; u++) part.copy_update(u);
  } else {
    take_registers();
    for (int u = 0; u < UPDATES; u++) part.update(u);
  }
}
