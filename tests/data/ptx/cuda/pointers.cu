// Generic addresses, local arrays, address-space checks, managed memory, clocks, assertions by trap.
__managed__ int counter;
__device__ __constant__ char letters[] = "warp";
__device__ const double tables[3][2] = {{1, 2}, {3, 4}, {5, 6}};
extern "C" __global__ void pointers(int **p, int *q, double *d, int n) {
  int stack[32];
  __shared__ int s[32];
  for (int i = 0; i < 32; ++i) stack[i] = q[i] * i;
  int *r = n > 3 ? stack : n > 2 ? s : q;
  s[threadIdx.x & 31] = n;
  __syncthreads();
  q[0] = r[n & 31] + *p[n] + __isGlobal(r) + __isShared(r) + letters[n & 3];
  if (n == 12345) __trap();
  d[0] = tables[n % 3][n & 1] + (double)clock64() + counter;
  __nanosleep(100);
  __builtin_assume(n > 0);
  asm volatile("prefetch.global.L2 [%0];" ::"l"(q));
}
