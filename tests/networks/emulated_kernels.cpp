// CUDA kernels on a CPU, for tests: a block's threads are fibers that take turns, and operations of a warp wait for
// all of its lanes. Compiled with the kernel's own source: g++ -DKERNELS='"trunk.cu"' -DW=64 ... emulated_kernels.cpp
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#ifndef CLUSTER
#define CLUSTER 1  // blocks that run at the same time and see each other's shared memory
#endif

struct Index { int x, y; };
struct float2 { float x, y; };
struct uint4 { unsigned x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static int min(int a, int b) { return a < b ? a : b; }
static float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

// Fibers, of all blocks of a cluster.
static Index threadIdx, blockIdx, gridDim;
static std::vector<ucontext_t> fibers;
static ucontext_t scheduler;
static std::vector<char> done;
static int current, threads;
struct Barrier { int waiting = 0, round = 0; };
struct Block {
  Barrier all;
  std::vector<Barrier> warps, groups, named;
  std::vector<char> memory;
  char* shared() { return (char*)(((uintptr_t)memory.data() + 127) / 128 * 128); }
};
static std::vector<Block> cluster;
static Block* block;  // whose thread runs
static Barrier cluster_barrier;

static void wait_at(Barrier& barrier, int size) {
  const int round = barrier.round;
  if (++barrier.waiting == size) {
    barrier.waiting = 0;
    barrier.round++;
    return;
  }
  while (barrier.round == round) swapcontext(&fibers[current], &scheduler);
}
static void __syncthreads() { wait_at(block->all, threads); }
static void sync_cluster() { wait_at(cluster_barrier, CLUSTER * threads); }
static void sync_warp() { wait_at(block->warps[threadIdx.x / 32], 32); }
static void sync_warpgroup() { wait_at(block->groups[threadIdx.x / 128], 128); }
static void sync_threads(int barrier, int size) { wait_at(block->named.at(barrier), size); }
static int uniform(int x) { return x; }
static void show_arrival(int barrier, int size) {
  Barrier& named = block->named.at(barrier);
  if (++named.waiting == size) named.waiting = 0, named.round++;
}

// What the lanes of a warp show each other.
typedef unsigned int u32;
struct Shown { u32 r[4]; u32 b[2]; const unsigned short* at; float x; };
static std::vector<Shown> shown;
static Shown& lane_of_warp(int lane) { return shown[current / 32 * 32 + lane]; }
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

// What each thread has read since it last saw to it that its reads are over. With LATE_READS they may be late: a copy
// over them is spoilt, as they would be.
static std::vector<std::vector<const unsigned short*>> reads;
static void end_reads() { reads[current].clear(); }
static bool still_read(const void* from, u32 bytes) {
  for (const auto& own : reads)
    for (const void* at : own)
      if (at >= from && at < (const char*)from + bytes) return true;
  return false;
}

static void load(u32 (&r)[4], const unsigned short* p, bool transposed) {
  lane_of_warp(lane_id()).at = p;
#ifdef LATE_READS
  reads[current].push_back(p);
#endif
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
static void product_small(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  for (float& each : c) each = 0.0f;
  multiply_add(c, a, b0, b1);
}
static u32 transpose(u32 x) {
  lane_of_warp(lane_id()).r[0] = x;
  sync_warp();
  u32 made = 0;
  for (int h = 0; h < 2; h++) {
    const int row = lane_id() % 4 * 2 + h, col = lane_id() / 4;
    const u32 word = lane_of_warp(row * 4 + col / 2).r[0];
    made |= (col % 2 ? word >> 16 : word & 0xffff) << 16 * h;
  }
  sync_warp();
  return made;
}
static float tanh_of(float x) { return std::tanh(x); }

// Ordinary stores that matrix units and copies do not see yet.
static std::vector<std::vector<const unsigned short*>> unseen;
static void show_stores() { unseen[current].clear(); }
#define BLOCK_BYTES 128
static void check_seen(const void* from, size_t bytes) {
  for (const auto& own : unseen)
    for (const void* at : own)
      if (at >= from && at < (const char*)from + bytes) std::abort();
}
template <class Value> static void put(unsigned short* to, Value value) {
  std::memcpy(to, &value, sizeof value);
  unseen[current].push_back(to);
}
static void store_matrices(unsigned short* to, uint4 four) {
  const u32 r[4] = {four.x, four.y, four.z, four.w};
  lane_of_warp(lane_id()).at = to;
  sync_warp();
  for (int m = 0; m < 4; m++) {
    unsigned short* row = (unsigned short*)lane_of_warp(m * 8 + lane_id() / 4).at;
    if ((uintptr_t)row % 16) std::abort();
    put(row + lane_id() % 4 * 2, r[m]);
  }
  sync_warp();
}

// Products of a warpgroup, done at once, of operands in memory in blocks of 8 x 8.
struct Matrix { const unsigned short* at; u32 along, across; };
static Matrix matrix(const unsigned short* p, u32 along, u32 across) {
  if ((uintptr_t)p % 16) std::abort();
  return {p, along, across};
}
static Matrix moved(Matrix m, int numbers) { return {m.at + numbers, m.along, m.across}; }
static float entry_of(const Matrix& m, int k, int i, bool k_inside) {
  const int inside = k_inside ? i % 8 * 8 + k % 8 : k % 8 * 8 + i % 8;
  return widen(m.at[k / 8 * (m.along / 2) + i / 8 * (m.across / 2) + inside]);
}
static void start_products() {}
template <int COUNT> static void settle(float (&)[COUNT]) {}
static void end_products() {}
template <int PENDING> static void wait_products() {}
static void take_registers() {}
static void give_registers() {}
template <int HALF>
static void multiply(float (&d)[HALF], Matrix a, Matrix b) {
  for (int i = 0; i < HALF; i++) {
    const int row = threadIdx.x % 128 / 32 * 16 + lane_id() / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + lane_id() % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) d[i] += entry_of(a, k, row, false) * entry_of(b, k, col, false);
  }
  sync_warpgroup();
}

template <int TRANSPOSED, int HALF>
static void multiply(float (&d)[HALF], Matrix a, Matrix b) {
  for (int i = 0; i < 8; i++) check_seen(a.at + i * a.across / 2, 2 * BLOCK_BYTES);
  sync_warpgroup();
  for (int k = 0; k < 16; k++) {
    float left[2];
    for (int h = 0; h < 2; h++) left[h] = entry_of(a, k, threadIdx.x % 128 / 32 * 16 + lane_id() / 4 + h * 8, true);
    for (int i = 0; i < HALF; i++) d[i] += left[i / 2 % 2] * entry_of(b, k, i / 4 * 8 + lane_id() % 4 * 2 + i % 2, TRANSPOSED);
  }
  sync_warpgroup();
}

static float across(float x, int mask) {
  lane_of_warp(lane_id()).x = x;
  sync_warp();
  const float other = lane_of_warp(lane_id() ^ mask).x;
  sync_warp();
  return other;
}

// Barriers that count arrivals and bytes. Every second copy arrives at once, the others when they are waited for, as late as
// they may: what is read too early, and what is overwritten too early, is wrong.
typedef unsigned long long u64;
struct Copy { void* to; const void* from; u32 bytes; bool done; };
static bool at_once;
struct Arrivals { u32 count, missing, announced = 0, phase = 0; std::vector<Copy> copies; };
static std::map<u64*, Arrivals> arrivals;
static void start_barrier(u64* barrier, u32 count = 1) { arrivals[barrier] = {count, count}; }
static void show_barriers() {}
static void end_phase(Arrivals& all) {
  for (const Copy& copy : all.copies) {
    if (!copy.done) std::memcpy(copy.to, copy.from, copy.bytes);
    all.announced -= copy.bytes;
  }
  if (all.announced) std::abort();
  all.copies.clear();
  all.missing = all.count;
  all.phase++;
}
static void arrive(u64* barrier) {
  Arrivals& all = arrivals.at(barrier);
  if (!all.missing) std::abort();
  if (--all.missing == 0 && !all.announced) end_phase(all);
}
static void announce(u64* barrier, u32 bytes) {
  arrivals.at(barrier).announced += bytes;
  arrive(barrier);
}
static void copy(void* to, const void* from, u32 bytes, u64* barrier) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16) std::abort();
  at_once = !at_once;
  const bool spoilt = still_read(to, bytes);
  if (spoilt) std::memset(to, 0xff, bytes);  // NaN
  else if (at_once) std::memcpy(to, from, bytes);
  arrivals.at(barrier).copies.push_back({to, from, bytes, at_once || spoilt});
}
static void wait_for(u64* barrier, u32 phase) {
  Arrivals& all = arrivals.at(barrier);
  u32 bytes = 0;
  while (all.phase % 2 == phase % 2) {
    bytes = 0;
    for (const Copy& copy : all.copies) bytes += copy.bytes;
    // All lanes of a warp may copy: what was announced is complete when the last of them has.
    if (all.missing || bytes < all.announced) swapcontext(&fibers[current], &scheduler);
    else end_phase(all);
  }
}

// Copies from shared memory, as late as they may be: with what is there when their thread waits for them.
static std::vector<std::vector<Copy>> stores;
static void store(void* to, const void* from, u32 bytes) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || bytes % 16) std::abort();
  check_seen(from, bytes);
  stores[current].push_back({to, from, bytes});
}
static void wait_stores() {
  for (const Copy& copy : stores[current]) std::memcpy(copy.to, copy.from, copy.bytes);
  stores[current].clear();
}
static void wait_stores_read() { wait_stores(); }

// Into the shared memory of another block of the cluster.
template <class T> static T* at_rank(T* own, int rank) { return (T*)(cluster.at(rank).shared() + ((char*)own - block->shared())); }
static void send(float2* to, float2 value, u64* barrier, int rank) {
  *at_rank(to, rank) = value;
  arrivals.at(at_rank(barrier, rank)).copies.push_back({0, 0, sizeof value, true});
}
static void copy_to(unsigned short* to, const unsigned short* from, u32 bytes, u64* barrier, int rank) {
  check_seen(from, bytes);
  copy(at_rank(to, rank), from, bytes, at_rank(barrier, rank));
}
static void wait_for_peers(u64* barrier, u32 phase) { wait_for(barrier, phase); }

#define SHARED char* shared = block->shared();
#include KERNELS

static void** arguments;
static void (*entry)();
static void fiber_main() {
  entry();
  if (!stores[current].empty()) std::abort();
  done[current] = 1;
  swapcontext(&fibers[current], &scheduler);
}

static void run_cluster(int size) {
  static std::vector<std::unique_ptr<char[]>> stacks;
  const int count = CLUSTER * threads, stack = 1 << 17, first = blockIdx.x;
  fibers.assign(count, {}), done.assign(count, 0), shown.assign(count, {}), reads.assign(count, {});
  unseen.assign(count, {}), stores.assign(count, {});
  arrivals.clear();
  cluster_barrier = {};
  cluster.assign(CLUSTER, {});
  for (Block& one : cluster) {
    one.warps.assign(threads / 32, {}), one.groups.assign(threads / 128 + 1, {}), one.named.assign(16, {});
    one.memory.assign(size + 128, (char)0xff);  // NaN
  }
  while (stacks.size() < count) stacks.emplace_back(new char[stack]);
  for (int i = 0; i < count; i++) {
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks[i].get();
    fibers[i].uc_stack.ss_size = stack;
    makecontext(&fibers[i], fiber_main, 0);
  }
  // In a cluster warps run ahead of each other at random, and warpgroups stand still for a while: what one of them does not
  // wait for is not always there.
  u32 random = 1;
  auto draw = [&] { return random = random * 1664525 + 1013904223, random >> 16; };
  std::vector<int> still(count / 128 + 1, 0);
  bool waits = false;
  for (int left = count; left;) {
    left = 0;
    for (current = 0; current < count; current++) {
      if (CLUSTER > 1 && current % 32 == 0) {
        int& rounds = still[current / 128];
        if (current % 128 == 0) rounds = rounds ? rounds - 1 : draw() % 128 ? 0 : draw() % (draw() % 2 ? 200 : 1000);
        waits = rounds || draw() % 2;
      }
      if (done[current]) continue;
      left++;
      if (waits) continue;
      threadIdx = {current % threads, 0};
      blockIdx.x = first + current / threads;
      block = &cluster[current / threads];
      swapcontext(&scheduler, &fibers[current]);
    }
  }
}

static void run_grid(int blocks, int networks, int size, int count) {
  threads = count;
  gridDim = {blocks, networks};
  for (int y = 0; y < networks; y++)
    for (int x = 0; x < blocks; x += CLUSTER) {
      blockIdx = {x, y};
      run_cluster(size);
    }
}

struct Pointer {
  void* at;
  template <typename T>
  operator T*() const { return (T*)at; }
};
template <typename F, int... I>
static void call(F kernel, std::integer_sequence<int, I...>) { kernel(Pointer{arguments[I]}...); }
template <typename... A>
static void run(void (*kernel)(A...)) { call(kernel, std::make_integer_sequence<int, sizeof...(A)>()); }

// ENTRY is the kernel's name.
extern "C" void launch(int blocks, int networks, int size, int count, void** given) {
  arguments = given;
  entry = [] { run(ENTRY); };
  run_grid(blocks, networks, size, count);
}
