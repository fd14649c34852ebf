extern "C" __global__ void sample(cudaTextureObject_t t, cudaSurfaceObject_t s, float *y, int w) {
  int x = threadIdx.x, r = blockIdx.x;
  float4 v = tex2D<float4>(t, x + 0.5f, r + 0.5f);
  y[r * w + x] = v.x + v.y + tex1Dfetch<float>(t, x);
  surf2Dwrite(v.z, s, x * 4, r);
}
