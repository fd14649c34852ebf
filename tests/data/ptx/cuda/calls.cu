// Calls that stay calls: recursion, structs by value, function pointers, a switch, varargs-free.
struct Big { double a[3]; int n; };
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ Big scale(Big b, double s) {
  for (int i = 0; i < 3; ++i) b.a[i] *= s;
  b.n++;
  return b;
}
typedef float (*Op)(float, float);
__device__ float add(float a, float b) { return a + b; }
__device__ float mul(float a, float b) { return a * b; }
__device__ Op table[2] = {add, mul};
extern "C" __global__ void calls(int *i, Big *b, float *f, int which) {
  int t = threadIdx.x;
  i[t] = fib(t & 15);
  b[t] = scale(b[t], f[t]);
  f[t] = table[which](f[t], 2.f);
  switch (i[t] % 7) {
    case 0: f[t] += 1; break;
    case 1: f[t] *= 3; break;
    case 2: f[t] = sqrtf(f[t]); break;
    case 3: f[t] -= 8; break;
    case 4: f[t] = 1 / f[t]; break;
    case 5: f[t] = -f[t]; break;
    default: f[t] = 0;
  }
}
