// Products of a matrix with a vector (gemm.cc).
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/every_target.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/random_weights.h"

using namespace lumen;
using namespace lumen::kernels;

TEST_CASE("a product with a vector is a column of one with a matrix, to the bit") {
  Philox random(12);
  on_every_target([&] {
    for (int64_t m : {1, 3, 8, 17, 70}) {
      for (int64_t k : {1, 5, 511, 512, 513, 1024, 5000}) {
        const auto a = random_floats(random, m * k), b = random_floats(random, k);
        std::vector<float> twice;  // b in two columns
        for (float x : b) twice.insert(twice.end(), {x, x});
        for (bool accumulate : {false, true}) {
          std::vector<float> start = random_floats(random, m), want(m), wide;
          for (float x : start) wide.insert(wide.end(), {x, x});
          ThreadPool single(1);
          std::vector<std::byte> memory(gemm_workspace_bytes(m, 2, k, 3) + 64);
          GemmArgs args{};
          args.m = m, args.n = 2, args.k = k;
          args.a = a.data(), args.a_row_stride = k, args.a_col_stride = 1;
          args.b = twice.data(), args.b_row_stride = 2, args.b_col_stride = 1;
          args.c = wide.data(), args.c_stride = 2;
          args.accumulate = accumulate;
          args.workspace = align_64(memory);
          gemm(single, args);
          for (int64_t i = 0; i < m; ++i) want[i] = 2 * wide[2 * i + 1];
          auto doubled = [](int64_t, int64_t begin, int64_t end, float* piece) {
            for (int64_t j = begin; j < end; ++j) piece[j - begin] *= 2;
          };
          const Epilogue epilogue = doubled;
          args.n = 1;
          args.b = b.data(), args.b_row_stride = 1, args.b_col_stride = 9;
          args.c_stride = 1;
          args.epilogue = &epilogue;
          for (int threads : {1, 3}) {
            ThreadPool pool(threads);
            std::vector<float> c = start;
            args.c = c.data();
            gemm(pool, args);
            INFO(m << " rows, " << k << " deep, threads " << threads);
            REQUIRE(c == want);
          }
        }
      }
    }
  });
}
