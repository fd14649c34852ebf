extern "C" __global__ void special(const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  y[i] = sinf(v) + cosf(v) + tanhf(v) + expf(v) + logf(fabsf(v) + 1) + powf(fabsf(v), 0.3f) + rsqrtf(v * v + 1) + erff(v) + cbrtf(v);
}
extern "C" __global__ void special_double(const double *x, double *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  double v = x[i];
  y[i] = sin(v) + exp(-v * v) + log1p(fabs(v)) + sqrt(fabs(v)) + fmod(v, 3.0) + floor(v) + rint(v);
}
extern "C" __global__ void integers(const int *a, const unsigned *b, long long *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = a[i];
  unsigned u = b[i];
  long long l = (long long)x * u;
  l += x / (int)(u | 1) + x % 7 + (u >> 3) * __clz(x) + __popc(u) + __brev(u) + __ffs(x) + __mulhi(x, x) + __umulhi(u, u);
  l ^= __funnelshift_l(u, x, 5) + __byte_perm(u, x, 0x3201) + __dp4a(x, x, 3) + abs(x) + min(x, 5) + max(u, 9u) + __sad(x, 4, u);
  c[i] = l / (u + 1) + (l << (u & 63)) + __clzll(l) + __popcll(l);
}
extern "C" __global__ void conversions(const float *f, const double *d, int *i, unsigned char *c, short *s, long long *l, unsigned long long *ul, float *fo) {
  int t = threadIdx.x;
  i[t] = __float2int_rz(f[t]) + __float2int_rn(f[t]) + __double2int_ru(d[t]);
  c[t] = (unsigned char)f[t];
  s[t] = (short)d[t];
  l[t] = (long long)d[t];
  ul[t] = (unsigned long long)f[t];
  fo[t] = (float)ul[t] + (float)d[t] + __int_as_float(i[t]) + (float)s[t] + (float)c[t] + __saturatef(f[t]);
}
