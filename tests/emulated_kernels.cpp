// CUDA kernels on a CPU, for tests: a block's threads are fibers that take turns, and operations of a warp wait for
// all of its lanes. Compiled with the kernel's own source: g++ -DKERNELS='"trunk.cu"' -DW=64 ... emulated_kernels.cpp
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)

typedef unsigned int u32;
struct Index { int x, y; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static float2 make_float2(float x, float y) { return {x, y}; }
static float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

// Fibers.
static Index threadIdx, blockIdx, gridDim;
static std::vector<ucontext_t> fibers;
static ucontext_t scheduler;
static std::vector<char> done;
static int current, threads;
struct Barrier { int waiting = 0, round = 0; };
static Barrier block_barrier;
static std::vector<Barrier> warp_barriers;

static void wait_at(Barrier& barrier, int size) {
  const int round = barrier.round;
  if (++barrier.waiting == size) {
    barrier.waiting = 0;
    barrier.round++;
    return;
  }
  while (barrier.round == round) swapcontext(&fibers[current], &scheduler);
}
static void __syncthreads() { wait_at(block_barrier, threads); }
static std::vector<Barrier> group_barriers;
static void sync_group(int group, int size) { wait_at(group_barriers.at(group), size); }
static u32 count_up(u32* counter) { return (*counter)++; }
static void sync_warp() { wait_at(warp_barriers[threadIdx.x / 32], 32); }

static void sync_lanes() { sync_warp(); }

// What the lanes of a warp show each other.
struct Shown { u32 r[4]; u32 b[2]; const unsigned short* at; float x; };
static std::vector<Shown> shown;
static Shown& lane_of_warp(int lane) { return shown[threadIdx.x / 32 * 32 + lane]; }
static int lane_id() { return threadIdx.x % 32; }

static float widen(unsigned bits) {
  u32 word = bits << 16;
  float f;
  std::memcpy(&f, &word, 4);
  return f;
}
static unsigned narrow(float f) {
  u32 word;
  std::memcpy(&word, &f, 4);
  return std::isnan(f) ? 0x7fc0 : (word + 0x7fff + ((word >> 16) & 1)) >> 16;
}
static u32 pack(float low, float high) { return narrow(low) | narrow(high) << 16; }
static float2 unpack(u32 r) { return {widen(r & 0xffff), widen(r >> 16)}; }
static float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

static void load(u32 (&r)[4], const unsigned short* p, bool transposed) {
  lane_of_warp(lane_id()).at = p;
  sync_warp();
  for (int m = 0; m < 4; m++)
    for (int h = 0; h < 2; h++) {
      const int row = transposed ? lane_id() % 4 * 2 + h : lane_id() / 4;
      const int col = transposed ? lane_id() / 4 : lane_id() % 4 * 2 + h;
      const u32 value = lane_of_warp(m * 8 + row).at[col];
      r[m] = h ? r[m] | value << 16 : value;
    }
  sync_warp();
}
static void load_matrices(u32 (&r)[4], const unsigned short* p) { load(r, p, false); }
static void load_transposed(u32 (&r)[4], const unsigned short* p) { load(r, p, true); }

static float half_of(u32 word, int h) { return widen(h ? word >> 16 : word & 0xffff); }

static void multiply_add(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  Shown& mine = lane_of_warp(lane_id());
  std::memcpy(mine.r, a, sizeof mine.r);
  mine.b[0] = b0, mine.b[1] = b1;
  sync_warp();
  for (int i = 0; i < 4; i++) {
    const int row = lane_id() / 4 + i / 2 * 8, col = lane_id() % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      const Shown& left = lane_of_warp(row % 8 * 4 + k % 8 / 2);
      const Shown& right = lane_of_warp(col * 4 + k % 8 / 2);
      c[i] += half_of(left.r[row / 8 + k / 8 * 2], k % 2) * half_of(right.b[k / 8], k % 2);
    }
  }
  sync_warp();
}
static float across(float x, int mask) {
  lane_of_warp(lane_id()).x = x;
  sync_warp();
  const float other = lane_of_warp(lane_id() ^ mask).x;
  sync_warp();
  return other;
}

// Copies arrive when they are waited for, as late as they may.
typedef unsigned long long u64;
struct Copy { void* to; const void* from; u32 bytes; };
struct Arrivals { u32 announced = 0, phase = 0; std::vector<Copy> copies; };
static std::map<u64*, Arrivals> arrivals;
static void start_barrier(u64* barrier) { arrivals[barrier] = {}; }
static void show_barriers() {}
static void announce(u64* barrier, u32 bytes) { arrivals.at(barrier).announced += bytes; }
static void copy(void* to, const void* from, u32 bytes, u64* barrier) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16) std::abort();
  arrivals.at(barrier).copies.push_back({to, from, bytes});
}
static void wait_for(u64* barrier, u32 phase) {
  Arrivals& all = arrivals.at(barrier);
  while (all.phase % 2 == phase % 2) {
    if (!all.announced) {
      swapcontext(&fibers[current], &scheduler);
      continue;
    }
    for (const Copy& copy : all.copies) std::memcpy(copy.to, copy.from, copy.bytes), all.announced -= copy.bytes;
    if (all.announced) std::abort();
    all.copies.clear();
    all.phase++;
  }
}

// Groups of copies of each thread: they arrive when they must have.
static std::vector<std::vector<std::vector<Copy>>> groups;
static void copy_vector(void* to, const void* from) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16) std::abort();
  groups[current].back().push_back({to, from, 16});
}
static void end_group() { groups[current].push_back({}); }
template <int LEFT>
static void wait_for_groups() {
  auto& mine = groups[current];
  while ((int)mine.size() > LEFT + 1) {
    for (const Copy& copy : mine.front()) std::memcpy(copy.to, copy.from, copy.bytes);
    mine.erase(mine.begin());
  }
}

static std::vector<char> shared_memory;
#define SHARED char* shared = (char*)(((uintptr_t)shared_memory.data() + 127) / 128 * 128);
#include KERNELS

static void** arguments;
static void (*entry)();
static void fiber_main() {
  entry();
  done[current] = 1;
  swapcontext(&fibers[current], &scheduler);
}

static void run_grid(int blocks, int networks, int size, int count) {
  threads = count;
  gridDim = {blocks, networks};
  for (int y = 0; y < networks; y++)
    for (int x = 0; x < blocks; x++) {
      blockIdx = {x, y};
      shared_memory.assign(size + 128, (char)0xff);  // NaN
      fibers.assign(threads, {}), done.assign(threads, 0), shown.assign(threads, {});
      arrivals.clear();
      groups.assign(threads, {{}});
      warp_barriers.assign(threads / 32, {});
      group_barriers.assign(threads / 32, {});
      block_barrier = {};
      static std::vector<std::vector<char>> stacks;
      stacks.resize(threads);
      for (int i = 0; i < threads; i++) {
        stacks[i].resize(1 << 17);
        getcontext(&fibers[i]);
        fibers[i].uc_stack.ss_sp = stacks[i].data();
        fibers[i].uc_stack.ss_size = stacks[i].size();
        makecontext(&fibers[i], fiber_main, 0);
      }
      for (int left = threads; left;) {
        left = 0;
        for (current = 0; current < threads; current++)
          if (!done[current]) {
            left++;
            threadIdx = {current, 0};
            swapcontext(&scheduler, &fibers[current]);
          }
      }
    }
}

struct Pointer {
  void* at;
  template <typename T>
  operator T*() const { return (T*)at; }
};
template <typename F, int... I>
static void call(F kernel, std::integer_sequence<int, I...>) {
  kernel(Pointer{arguments[I]}...);
}
template <typename... A>
static void run(void (*kernel)(A...)) { call(kernel, std::make_integer_sequence<int, sizeof...(A)>()); }

extern "C" void launch(int blocks, int networks, int size, int count, void** given) {
  arguments = given;
#ifdef TRUNK_FORWARD
  entry = [] { run(trunk_forward); };
#endif
#ifdef TRUNK_BACKWARD
  entry = [] { run(trunk_backward); };
#endif
#ifdef TRUNK_WEIGHTS
  entry = [] { run(trunk_weights); };
#endif
  run_grid(blocks, networks, size, count);
}
