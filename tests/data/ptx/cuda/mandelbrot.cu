template <typename T>
__global__ void mandelbrot(unsigned *out, int w, int h, T x0, T y0, T step, int limit) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= w || py >= h) return;
  T cx = x0 + px * step, cy = y0 + py * step, x = 0, y = 0;
  int i = 0;
  while (i < limit && x * x + y * y < T(4)) {
    T t = x * x - y * y + cx;
    y = 2 * x * y + cy;
    x = t;
    ++i;
  }
  out[py * w + px] = i;
}
template __global__ void mandelbrot<float>(unsigned *, int, int, float, float, float, int);
template __global__ void mandelbrot<double>(unsigned *, int, int, double, double, double, int);
