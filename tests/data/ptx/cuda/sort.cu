extern "C" __global__ void bitonic(int *x, int n) {
  extern __shared__ int s[];
  int t = threadIdx.x;
  s[t] = t < n ? x[t] : 0x7fffffff;
  __syncthreads();
  for (int k = 2; k <= blockDim.x; k <<= 1)
    for (int j = k >> 1; j; j >>= 1) {
      int o = t ^ j;
      if (o > t) {
        int a = s[t], b = s[o];
        if ((a > b) == ((t & k) == 0)) { s[t] = b; s[o] = a; }
      }
      __syncthreads();
    }
  if (t < n) x[t] = s[t];
}
