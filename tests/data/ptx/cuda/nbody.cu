extern "C" __global__ void nbody(const float4 *p, float4 *v, int n, float dt) {
  __shared__ float4 s[256];
  int i = blockIdx.x * 256 + threadIdx.x;
  float4 me = i < n ? p[i] : make_float4(0, 0, 0, 0);
  float3 a = make_float3(0, 0, 0);
  for (int j0 = 0; j0 < n; j0 += 256) {
    s[threadIdx.x] = j0 + threadIdx.x < n ? p[j0 + threadIdx.x] : make_float4(0, 0, 0, 0);
    __syncthreads();
#pragma unroll 16
    for (int j = 0; j < 256; ++j) {
      float dx = s[j].x - me.x, dy = s[j].y - me.y, dz = s[j].z - me.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-6f), w = s[j].w * r * r * r;
      a.x += dx * w; a.y += dy * w; a.z += dz * w;
    }
    __syncthreads();
  }
  if (i < n) { v[i].x += a.x * dt; v[i].y += a.y * dt; v[i].z += a.z * dt; }
}
