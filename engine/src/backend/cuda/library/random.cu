//@ philox :
// A block of the generator Philox 4x32-10: the seed is the key, the offset and
// the subsequence are the counter. Both words of a product are one instruction;
// asked for as one number of 64 bits they are two.
struct philox_block { unsigned x0, x1, x2, x3; };
__device__ inline philox_block philox(long long seed, long long offset, long long subsequence) {
  unsigned key0 = (unsigned)seed, key1 = (unsigned)((unsigned long long)seed >> 32);
  philox_block c = {(unsigned)offset, (unsigned)((unsigned long long)offset >> 32), (unsigned)subsequence,
                    (unsigned)((unsigned long long)subsequence >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned a = __umulhi(c.x0, 0xd2511f53u), b = __umulhi(c.x2, 0xcd9e8d57u);
    c = {b ^ c.x1 ^ key0, c.x2 * 0xcd9e8d57u, a ^ c.x3 ^ key1, c.x0 * 0xd2511f53u};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return c;
}
//@ unit_f32 :
// A number in (0, 1] from a word: x / 2^32 + 2^-33. Scaling by a power of two is
// exact, so that a fused multiplication and addition rounds the same.
__device__ inline float unit_f32(unsigned x) { return (float)x * 0x1p-32f + 0x1p-33f; }
//@ unit_f64 :
// A number in (0, 1] from the 53 bits x ^ (y << 21), all of which a double holds.
__device__ inline double unit_f64(unsigned x, unsigned y) {
  return (double)((unsigned long long)x ^ ((unsigned long long)y << 21)) * 0x1p-53 + 0x1p-54;
}
