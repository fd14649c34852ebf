// out = a x + y; four neighbours a thread, a loop for what is left at the end.
extern "C" __global__ void saxpy(float a, const float* x, const float* y, float* out, int n) {
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i + 3 < n) {
        for (int j = 0; j < 4; j++) out[i + j] = a * x[i + j] + y[i + j];
    } else {
        for (; i < n; i++) out[i] = a * x[i] + y[i];
    }
}
