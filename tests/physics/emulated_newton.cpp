// newton.cu on a CPU, for tests: the lanes of a warp are fibers that take turns, and what they do together waits for all.
#include <ucontext.h>

#include <cmath>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(n)

struct Index { int x; };
static Index threadIdx, blockIdx;
static ucontext_t fibers[32], scheduler;
static bool done[32];
static int current, waiting, rounds;
static float shown[32];

static void sync_warp() {
  const int mine = rounds;
  if (++waiting == 32) {
    waiting = 0, rounds++;
    return;
  }
  while (rounds == mine) swapcontext(&fibers[current], &scheduler);
}
static float from_lane(float x, int lane) {
  shown[threadIdx.x % 32] = x;
  sync_warp();
  const float other = shown[lane];
  sync_warp();
  return other;
}
static float across(float x, int mask) { return from_lane(x, threadIdx.x % 32 ^ mask); }

static std::vector<float> memory;
#define SHARED float* shared = memory.data();
#include KERNEL

static void** given;
static void lane_main() {
  void** p = given;
  newton((float*)p[0], (float*)p[1], (float*)p[2], (float*)p[3], (float*)p[4], (unsigned char*)p[5], (float*)p[6],
         (float*)p[7], (float*)p[8]);
  done[current] = true;
  swapcontext(&fibers[current], &scheduler);
}

extern "C" int shared_floats() { return FLOATS; }

extern "C" void run(int blocks, void** pointers) {
  given = pointers;
  static std::vector<char> stacks(32 << 17);
  for (int block = 0; block < blocks; block++) {
    memory.assign(WARPS * (FLOATS), NAN);
    for (int warp = 0; warp < WARPS; warp++) {  // which have nothing in common
      blockIdx.x = block, waiting = 0;
      for (int i = 0; i < 32; i++) {
        done[i] = false;
        getcontext(&fibers[i]);
        fibers[i].uc_stack.ss_sp = stacks.data() + ((size_t)i << 17);
        fibers[i].uc_stack.ss_size = 1 << 17;
        makecontext(&fibers[i], lane_main, 0);
      }
      for (int left = 32; left;) {
        left = 0;
        for (current = 0; current < 32; current++)
          if (!done[current]) {
            left++;
            threadIdx.x = 32 * warp + current;
            swapcontext(&scheduler, &fibers[current]);
          }
      }
    }
  }
}
