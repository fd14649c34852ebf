// Decoupled look-back scan and a Hillis-Steele block scan.
extern "C" __global__ void scan_block(const int *x, int *y, int n) {
  __shared__ int s[2][512];
  int t = threadIdx.x, i = blockIdx.x * 512 + t, in = 0;
  s[0][t] = i < n ? x[i] : 0;
  __syncthreads();
  for (int d = 1; d < 512; d <<= 1) {
    s[in ^ 1][t] = s[in][t] + (t >= d ? s[in][t - d] : 0);
    in ^= 1;
    __syncthreads();
  }
  if (i < n) y[i] = s[in][t];
}
struct State { unsigned flag; int value; };
extern "C" __global__ void scan_lookback(const int *x, int *y, volatile State *state, int n) {
  __shared__ int before;
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, v = i < n ? x[i] : 0;
  int lane = t & 31;
  for (int d = 1; d < 32; d <<= 1) {
    int up = __shfl_up_sync(~0u, v, d);
    if (lane >= d) v += up;
  }
  __shared__ int warps[32];
  if (lane == 31) warps[t / 32] = v;
  __syncthreads();
  if (t < 32) {
    int w = warps[t];
    for (int d = 1; d < 32; d <<= 1) {
      int up = __shfl_up_sync(~0u, w, d);
      if (lane >= d) w += up;
    }
    warps[t] = w;
  }
  __syncthreads();
  if (t >= 32) v += warps[t / 32 - 1];
  if (t == blockDim.x - 1) {
    state[blockIdx.x].value = v;
    __threadfence();
    state[blockIdx.x].flag = 1;
    int sum = 0;
    for (int b = (int)blockIdx.x - 1; b >= 0; --b) {
      while (state[b].flag == 0) {}
      __threadfence();
      sum += state[b].value;
      if (state[b].flag == 2) break;
    }
    before = sum;
  }
  __syncthreads();
  if (i < n) y[i] = v + before;
}
