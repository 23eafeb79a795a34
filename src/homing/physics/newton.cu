// Constrained accelerations by Newton's method (`constrained` in solvers.py), all iterations in one kernel.
//
// A warp takes one environment and ends when it has converged, so that none waits for the slowest. Matrices lie in
// shared memory; lane i has coordinate i of vectors over coordinates, and constraints lane, lane + 32, ...
//
// Set by the compiler's command line:
//   D           coordinates, at most 32
//   C           constraints
//   WARPS       environments of a block
//   ITERATIONS  at most
//   POINTS      of a line search

#define STRIDE (D | 1)  // odd: lanes that read a column meet no bank twice
#define SLOTS ((C + 31) / 32)
#define ENTRIES (D * (D + 1) / 2)  // of a lower triangle
#define PARTS ((ENTRIES + 31) / 32)
#define FLOATS (C * STRIDE + 2 * D * STRIDE + D + 2 * C)  // of shared memory for an environment
#define TINY 1e-9f
#define FAR 1e-3f
#define INFINITE 3e38f
#define EACH(s) _Pragma("unroll") for (int s = 0; s < SLOTS; s++)

#ifndef EMULATED  // the tests have these for a CPU
#define SHARED extern __shared__ float shared[];
#define ALL 0xffffffffu
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ float across(float x, int mask) { return __shfl_xor_sync(ALL, x, mask); }
__device__ __forceinline__ float from_lane(float x, int lane) { return __shfl_sync(ALL, x, lane); }
#endif

__device__ __forceinline__ float sum(float x) {
  for (int mask = 16; mask; mask /= 2) x += across(x, mask);
  return x;
}

__device__ __forceinline__ float largest(float x) {
  for (int mask = 16; mask; mask /= 2) x = fmaxf(x, across(x, mask));
  return x;
}

// Element `lane` of the solution of Ax = right, from A's lower triangle, which is overwritten: A = LDLᵀ.
__device__ __forceinline__ float solve(float* A, float right, int lane) {
  for (int k = 0; k < D; k++) {
    const float above = from_lane(right, k);
    if (lane > k && lane < D) {
      const float factor = A[lane * STRIDE + k] / A[k * STRIDE + k];
      right -= factor * above;
      for (int j = k + 1; j <= lane; j++) A[lane * STRIDE + j] -= factor * A[j * STRIDE + k];
    }
    sync_warp();
  }
  for (int k = D - 1; k >= 0; k--) {
    if (lane == k) right /= A[k * STRIDE + k];
    const float below = from_lane(right, k);
    if (lane < k) right -= A[k * STRIDE + lane] * below;
  }
  sync_warp();
  return right;
}

// A system in shared memory, and a lane's constraints.
struct System {
  const float *mass, *jacobian;
  float* vector;  // shows a vector over coordinates to all lanes
  int lane;
  float stiffness[SLOTS], target[SLOTS];
  bool equality[SLOTS];

  __device__ __forceinline__ void show(float x) {
    if (lane < D) vector[lane] = x;
    sync_warp();
  }
  // Element `lane` of M times the vector that is shown.
  __device__ __forceinline__ float times_mass() const {
    float total = 0;
    if (lane < D)
      for (int j = 0; j < D; j++) total += mass[lane * STRIDE + j] * vector[j];
    return total;
  }
  // The lane's elements of J times the vector that is shown; afterwards another may be.
  __device__ __forceinline__ void times_jacobian(float (&out)[SLOTS]) const {
    EACH(s) {
      out[s] = 0;
      if (lane + 32 * s < C)
        for (int j = 0; j < D; j++) out[s] += jacobian[(lane + 32 * s) * STRIDE + j] * vector[j];
    }
    sync_warp();
  }
  __device__ __forceinline__ float active(int s, float residual) const {
    return equality[s] || residual < 0 ? stiffness[s] : 0.0f;
  }
  // Σ k r² over the active constraints.
  __device__ __forceinline__ float penalty(const float (&residual)[SLOTS]) const {
    float total = 0;
    EACH(s) total += active(s, residual[s]) * residual[s] * residual[s];
    return sum(total);
  }
  // `line_search` of solvers.py.
  __device__ __forceinline__ float line_search(float slope, float curvature, const float (&residual)[SLOTS],
                                               const float (&rate)[SLOTS]) const {
    float start = 0;
    EACH(s) start += active(s, residual[s]) * rate[s] * residual[s];
    float low = 0, high = INFINITE, t = 1, at_low = slope + sum(start), at_high = 0;
    for (int point = 0; point < POINTS; point++) {
      float push = 0, steep = 0;
      EACH(s) {
        const float there = residual[s] + t * rate[s], weighted = active(s, there) * rate[s];
        push += weighted * there;
        steep += weighted * rate[s];
      }
      const float value = slope + t * curvature + sum(push);
      const float newton = t - value / fmaxf(curvature + sum(steep), TINY);
      if (value <= 0) low = t, at_low = value;
      else high = t, at_high = value;
      const float secant = low - at_low * (high - low) / fmaxf(at_high - at_low, TINY);
      t = newton >= low && newton <= high ? newton : secant;
    }
    return t;
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
newton(const float* masses, const float* forces, const float* jacobians, const float* targets,
       const float* stiffnesses, const unsigned char* equalities, const float* warm_starts, float* accelerations,
       float* pushes) {
  SHARED
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, env = blockIdx.x * WARPS + warp;
  float* jacobian = shared + warp * FLOATS;
  float* mass = jacobian + C * STRIDE;
  float* hessian = mass + D * STRIDE;
  float* vector = hessian + D * STRIDE;
  float* weights = vector + D;  // k of the active constraints
  float* pulls = weights + C;   // k r of them

  for (int i = lane; i < C * D; i += 32) jacobian[i / D * STRIDE + i % D] = jacobians[(long long)env * C * D + i];
  for (int i = lane; i < D * D; i += 32)
    mass[i / D * STRIDE + i % D] = hessian[i / D * STRIDE + i % D] = masses[(long long)env * D * D + i];
  System system{mass, jacobian, vector, lane};
  EACH(s) {
    const int c = lane + 32 * s;
    const bool there = c < C;
    system.stiffness[s] = there ? stiffnesses[env * C + c] : 0.0f;
    system.target[s] = there ? targets[env * C + c] : 0.0f;
    system.equality[s] = there && equalities[env * C + c];
  }
  const float force = lane < D ? forces[env * D + lane] : 0.0f;
  const float warm = lane < D ? warm_starts[env * D + lane] : 0.0f;
  sync_warp();

  // The start: without constraints or as before, whichever has the lower cost.
  float a = solve(hessian, force, lane), residual[SLOTS], other[SLOTS];
  system.show(a);
  system.times_jacobian(residual);
  system.show(warm);
  const float uphill = sum((system.times_mass() - force) * (warm - a));
  system.times_jacobian(other);
  EACH(s) residual[s] -= system.target[s], other[s] -= system.target[s];
  if (uphill + system.penalty(other) < system.penalty(residual)) {
    a = warm;
    EACH(s) residual[s] = other[s];
  }

  // The entries of the Hessian's lower triangle that the lane computes.
  int rows[PARTS], columns[PARTS];
#pragma unroll
  for (int p = 0, row = 0, begin = 0; p < PARTS; p++) {
    const int entry = lane + 32 * p;
    while (begin + row < entry) begin += ++row;  // where that row begins
    rows[p] = entry < ENTRIES ? row : 0, columns[p] = entry < ENTRIES ? entry - begin : 0;
  }

  for (int iteration = 0; iteration < ITERATIONS; iteration++) {
    system.show(a);
    const float smooth = system.times_mass() - force;
    EACH(s) {
      const int c = lane + 32 * s;
      if (c < C) {
        weights[c] = system.active(s, residual[s]);
        pulls[c] = weights[c] * residual[s];
      }
    }
    sync_warp();
    // Hessian M + Jᵀ k J and gradient Ma − f + Jᵀ k r, over the active constraints.
    float entries[PARTS], gradient = smooth;
#pragma unroll
    for (int p = 0; p < PARTS; p++) entries[p] = mass[rows[p] * STRIDE + columns[p]];
    for (int c = 0; c < C; c++) {
      const float weight = weights[c];
      if (weight == 0) continue;
      const float* along = jacobian + c * STRIDE;
      if (lane < D) gradient += pulls[c] * along[lane];
#pragma unroll
      for (int p = 0; p < PARTS; p++) entries[p] += weight * along[rows[p]] * along[columns[p]];
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++)
      if (lane + 32 * p < ENTRIES) hessian[rows[p] * STRIDE + columns[p]] = entries[p];
    sync_warp();

    const float direction = -solve(hessian, gradient, lane);
    float rate[SLOTS];
    system.show(direction);
    const float curvature = sum(direction * system.times_mass());
    system.times_jacobian(rate);
    const float step = system.line_search(sum(direction * smooth), curvature, residual, rate);
    float changed = 0;
    EACH(s) {
      const float before = system.active(s, residual[s]);
      residual[s] += step * rate[s];
      changed += system.active(s, residual[s]) != before;
    }
    a += step * direction;
    // All lanes see the same sums, and end together.
    const bool far = largest(fabsf(step * direction)) > FAR * largest(fabsf(a));
    if (sum(changed) == 0 && !far) break;
  }

  EACH(s) {
    const int c = lane + 32 * s;
    if (c < C) pulls[c] = system.active(s, residual[s]) * residual[s];
  }
  sync_warp();
  if (lane < D) {
    float push = 0;
    for (int c = 0; c < C; c++) push -= pulls[c] * jacobian[c * STRIDE + lane];
    accelerations[env * D + lane] = a;
    pushes[env * D + lane] = push;
  }
}
