// Rotary embedding of heads of 128 float32 values: one thread turns four neighbouring pairs of one position in
// every head.
extern "C" __global__ void rope(const float* x, const float* cosine, const float* sine, float* out, int heads) {
    int position = blockIdx.x * blockDim.y + threadIdx.y, at = 4 * threadIdx.x;
    for (int head = 0; head < heads; head++) {
        size_t base = ((size_t)position * heads + head) * 128;
        for (int j = at; j < at + 4; j++) {
            float c = cosine[position * 64 + j], s = sine[position * 64 + j];
            float a = x[base + j], b = x[base + j + 64];
            out[base + j] = a * c - b * s;
            out[base + j + 64] = b * c + a * s;
        }
    }
}
