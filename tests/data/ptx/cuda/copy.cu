// Cache operators and vector widths.
extern "C" __global__ void copy(const int4 *a, int4 *b, const double2 *c, double2 *d, const short *e, short *f, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  b[i] = __ldcs(a + i);
  __stcg(b + i + n, __ldcg(a + i));
  __stwt(b + i + 2 * n, __ldca(a + i));
  d[i] = __ldlu(c + i);
  f[i] = __ldcv(e + i);
  asm volatile("{.reg .b64 pol; .reg .b32 v; createpolicy.fractional.L2::evict_last.b64 pol, 1.0;\nld.global.L2::cache_hint.b32 v, [%0], pol; st.global.L1::no_allocate.b32 [%0], v;}" ::"l"(f));
}
