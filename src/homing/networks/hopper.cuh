// What kernels for Hopper cards share: the instructions of their matrix units, and tiles that bulk copies bring.
//
// Matrices are kept in blocks of 8 × 8 numbers, 128 bytes each, [rows / 8, columns / 8, 8, 8]: a tile is then ready for the
// matrix units as it is, as a left or a right operand, transposed or not. Thread `lane` of a warp has rows lane / 4 and
// lane / 4 + 8 of its 16, and columns 2 (lane % 4) and 2 (lane % 4) + 1 of each 8: a warp writes a block as 32 words.
//
// TAKEN: registers of each thread that computes, where those of the warpgroup that copies have fewer.

#include "copies.cuh"

#define BLOCK_BYTES 128

#ifndef EMULATED  // the tests have these for a CPU

__device__ __forceinline__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void show_arrival(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

// What all lanes of a warp have alike: so the compiler knows, and keeps it, and addresses made of it, in uniform registers.
__device__ __forceinline__ int uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// Registers move from the warpgroup that copies to those that compute.
#ifdef TAKEN
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 " TAKEN ";"); }
__device__ __forceinline__ void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
#else
__device__ __forceinline__ void take_registers() {}
__device__ __forceinline__ void give_registers() {}
#endif

// Products by the matrix units, in the background: from `start_products` until `wait_products` neither accumulators nor operands
// in registers may be touched.
__device__ __forceinline__ void start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Accumulators that do not begin with zeros are written before products start; without this the compiler moves that, and
// makes products wait for each other.
template <int COUNT>
__device__ __forceinline__ void settle(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// A matrix in shared memory without swizzling. Reduced along blocks that lie `along` bytes apart; `across` bytes between blocks
// in the other direction.
typedef u64 Matrix;
__device__ __forceinline__ Matrix matrix(const bf16* p, u32 along, u32 across) {
  return (Matrix)((address(p) & 0x3ffff) >> 4) | (u64)(along >> 4) << 16 | (u64)(across >> 4) << 32;
}

__device__ __forceinline__ Matrix moved(Matrix m, int numbers) { return m + numbers / 8; }

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D8(i), D8(i + 8)
#define D32(i) D8(i), D8(i + 8), D8(i + 16), D8(i + 24)
#define Q "%0,%1,%2,%3"
#define Q0 Q ",%4,%5,%6,%7"
#define R1 ",%8,%9,%10,%11"
#define Q1 R1 ",%12,%13,%14,%15"
#define Q2 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define Q4 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define P0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define P1 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define P2 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define P3 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define INSTRUCTION(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {"

// d [64, n] += a [64, 16] · b [16, n], both in shared memory with the rows of the reduction apart.
#define FROM_MEMORY(n, places, operands, left, right) \
  __device__ __forceinline__ void multiply(float (&d)[n / 2], Matrix a, Matrix b) { \
    asm volatile(INSTRUCTION(n) places "}, " left ", " right ", 1, 1, 1, 1, 1;" : operands : "l"(a), "l"(b)); \
  }
#define OPERANDS64 D32(0)
#define OPERANDS128 D32(0), D32(32)
#define OPERANDS192 D32(0), D32(32), D32(64)
#define OPERANDS256 D32(0), D32(32), D32(64), D32(96)
FROM_MEMORY(64, P0, OPERANDS64, "%32", "%33")
FROM_MEMORY(128, P0 P1, OPERANDS128, "%64", "%65")
FROM_MEMORY(192, P0 P1 P2, OPERANDS192, "%96", "%97")
FROM_MEMORY(256, P0 P1 P2 P3, OPERANDS256, "%128", "%129")
// The same where a lies with its columns side by side. TRANSPOSED: b lies with its columns, not its rows, side by side.
#define FROM_LEFT(n, places, operands, left, right, transposed) \
  template <int TRANSPOSED> \
  __device__ __forceinline__ void multiply(float (&d)[n / 2], Matrix a, Matrix b) { \
    asm volatile(INSTRUCTION(n) places "}, " left ", " right ", 1, 1, 1, 0, " transposed ";" \
                 : operands : "l"(a), "l"(b), "n"(1 - TRANSPOSED)); \
  }
#define OPERANDS8 D4(0)
#define OPERANDS16 D8(0)
#define OPERANDS24 D8(0), D4(8)
#define OPERANDS32 D16(0)
#define OPERANDS48 D16(0), D8(16)
#define OPERANDS96 D32(0), D16(32)
FROM_LEFT(8, Q, OPERANDS8, "%4", "%5", "%6")
FROM_LEFT(24, Q0 R1, OPERANDS24, "%12", "%13", "%14")
FROM_LEFT(16, Q0, OPERANDS16, "%8", "%9", "%10")
FROM_LEFT(32, Q0 Q1, OPERANDS32, "%16", "%17", "%18")
FROM_LEFT(48, Q0 Q1 Q2, OPERANDS48, "%24", "%25", "%26")
FROM_LEFT(64, P0, OPERANDS64, "%32", "%33", "%34")
FROM_LEFT(96, P0 Q4, OPERANDS96, "%48", "%49", "%50")
FROM_LEFT(128, P0 P1, OPERANDS128, "%64", "%65", "%66")

// Left operands are written by ordinary stores: four blocks of 8 × 8 by a warp, each lane's row of one at `to`. Matrix units and
// copies see them after `show_stores` of each thread that stored, and a barrier.
__device__ __forceinline__ void store_matrices(bf16* to, uint4 r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
               ::"r"(address(to)), "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w) : "memory");
}
template <class Value>
__device__ __forceinline__ void put(bf16* to, Value value) { *(Value*)to = value; }
__device__ __forceinline__ void show_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// c [16, 8] = a [16, 16] · b [16, 8] by one warp: zeros need no registers.
__device__ __forceinline__ void product_small(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
__device__ __forceinline__ u32 transpose(u32 x) {  // of a block that a warp holds
  u32 r;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(x));
  return r;
}

__device__ __forceinline__ float tanh_of(float x) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

#endif

// A ring of tiles of SIZE numbers: stage t % COUNT has tile t; `full` counts its bytes, `empty` the warpgroups, READERS of them,
// that are done with it.

template <int COUNT, int SIZE, int READERS>
struct TileRing {
  bf16* tiles;
  u64 *full, *empty;

  __device__ __forceinline__ bf16* operator[](int t) const { return tiles + t % COUNT * SIZE; }
  __device__ __forceinline__ void start() const {
    for (int i = 0; i < COUNT; i++) start_barrier(full + i, 1), start_barrier(empty + i, READERS);
  }
  __device__ __forceinline__ void wait_full(int t) const { wait_for(full + t % COUNT, t / COUNT); }
  __device__ __forceinline__ void wait_empty(int t) const {
    if (t >= COUNT) wait_for(empty + t % COUNT, t / COUNT - 1);
  }
  __device__ __forceinline__ void release(int t) const {
    if (threadIdx.x % 128 == 0) arrive(empty + t % COUNT);
  }
};

template <int N>
__device__ __forceinline__ void clear(float (&acc)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) acc[i] = 0.0f;
}
