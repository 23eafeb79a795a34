// Bulk copies to shared memory with the barriers that count them, and numbers in bfloat16.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short bf16;  // its bits

#ifndef EMULATED  // the tests have these for a CPU

#define SHARED extern __shared__ __align__(128) char shared[];

__device__ __forceinline__ u32 address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Barriers in shared memory. A phase ends when all arrivals that it was started with, and all bytes that were announced, are
// there; `phase` counts from 0.
__device__ __forceinline__ void start_barrier(u64* barrier, u32 arrivals = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}
__device__ __forceinline__ void announce(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(address(to)), "l"(from), "r"(bytes), "r"(address(barrier)) : "memory");
}
// Copies from shared memory; the thread that started them waits until they have read what they copy, or are over.
__device__ __forceinline__ void store(void* to, const void* from, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;"
               ::"l"(to), "r"(address(from)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void wait_for(u64* barrier, u32 phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra over;\nbra again;\nover:\n}"
      ::"r"(address(barrier)), "r"(phase & 1) : "memory");
}

// Blocks of a cluster write into each other's shared memory: to where `to` and `barrier` are in the one of this rank.
__device__ __forceinline__ void sync_cluster() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ u32 address_at(const void* p, int rank) {
  u32 r;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address(p)), "r"(rank));
  return r;
}
__device__ __forceinline__ void send(float2* to, float2 value, u64* barrier, int rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
               ::"r"(address_at(to, rank)), "f"(value.x), "f"(value.y), "r"(address_at(barrier, rank)) : "memory");
}
__device__ __forceinline__ void copy_to(void* to, const void* from, u32 bytes, u64* barrier, int rank) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(address_at(to, rank)), "r"(address(from)), "r"(bytes), "r"(address_at(barrier, rank)) : "memory");
}
__device__ __forceinline__ void wait_for_peers(u64* barrier, u32 phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@done bra over;\nbra again;\nover:\n}"
      ::"r"(address(barrier)), "r"(phase & 1) : "memory");
}
__device__ __forceinline__ u32 pack(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float2 unpack(u32 r) {
  return make_float2(__uint_as_float(r << 16), __uint_as_float(r & 0xffff0000u));
}
__device__ __forceinline__ float across(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }

#endif
