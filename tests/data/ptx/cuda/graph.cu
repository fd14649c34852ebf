extern "C" __global__ void bfs(const int *ptr, const int *adj, int *dist, int *frontier, int *next, int *count, int level, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int v = frontier[i];
  for (int e = ptr[v]; e < ptr[v + 1]; ++e)
    if (atomicCAS(&dist[adj[e]], -1, level) == -1) {
      unsigned mask = __activemask();
      int leader = __ffs(mask) - 1, base = 0, lane = threadIdx.x & 31;
      if (lane == leader) base = atomicAdd(count, __popc(mask));
      base = __shfl_sync(mask, base, leader);
      next[base + __popc(mask & ((1u << lane) - 1))] = adj[e];
    }
}
