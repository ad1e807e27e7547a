#include "lib/kernels/narrow_product.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/copy.h"
#include "lib/kernels/products/blocked_product.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/products/small_product.h"
#include "lib/kernels/products/vector_product.h"
#include "lib/kernels/tiles/amx.h"

namespace lumen::kernels {
namespace {

// Multiplications that are worth a thread.
constexpr int64_t kGrain = 65536;

// A matrix of float16, bfloat16 or float32: element (i, k) is number i · row_stride + k ·
// col_stride.
struct Matrix {
  DType dtype;
  const std::byte* x;
  int64_t row_stride, col_stride;

  Matrix at(int64_t row, int64_t col) const {
    return {dtype, x + row_bytes(dtype, row * row_stride + col * col_stride), row_stride,
            col_stride};
  }
  Matrix turned() const { return {dtype, x, col_stride, row_stride}; }
  const float* floats() const { return reinterpret_cast<const float*>(x); }
  const uint16_t* bits() const { return reinterpret_cast<const uint16_t*>(x); }
};

Matrix a_of(const GemmArgs& args) {
  return {args.a_type, reinterpret_cast<const std::byte*>(args.a), args.a_row_stride,
          args.a_col_stride};
}
Matrix b_of(const GemmArgs& args) {
  return {args.b_type, reinterpret_cast<const std::byte*>(args.b), args.b_row_stride,
          args.b_col_stride};
}
std::byte* result_at(const GemmArgs& args, int64_t row, int64_t col) {
  return reinterpret_cast<std::byte*>(args.c) + row_bytes(args.c_type, row * args.c_stride + col);
}

// y [rows, cols], rows one after the other: x as float32.
void widen(const Matrix& x, int64_t rows, int64_t cols, float* y) {
  if (x.col_stride == 1 && (x.row_stride == cols || rows == 1)) {
    return to_float(x.dtype, x.x, y, rows * cols);
  }
  if (x.dtype == DType::kF32) {
    for (int64_t i = 0; i < rows; ++i) {
      const float* const row = x.at(i, 0).floats();
      for (int64_t k = 0; k < cols; ++k) y[i * cols + k] = row[k * x.col_stride];
    }
    return;
  }
  if (x.col_stride == 1 || cols == 1) {
    return to_float_rows(x.dtype, x.x, x.row_stride, rows, cols, y, cols);
  }
  constexpr int64_t kPart = 256;
  uint16_t together[kPart];
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t at = 0; at < cols; at += kPart) {
      const int64_t count = std::min(kPart, cols - at);
      const uint16_t* const from = x.at(i, at).bits();
      for (int64_t k = 0; k < count; ++k) together[k] = from[k * x.col_stride];
      to_float(x.dtype, together, y + i * cols + at, count);
    }
  }
}

// Products of at most kFew rows or columns are made of such pieces of C, and of sums over such
// blocks of the depth, which are added in order.
constexpr int64_t kFew = 32, kBlock = 2048;
static_assert(kFew <= kSmallCols);

// A piece of a matrix as float32, in the order in which it lies.
struct Widened {
  alignas(64) float room[kFew * kFew];
  const float* numbers = nullptr;
  int64_t row_stride = 1, col_stride = 1;

  void read(const Matrix& x, int64_t rows, int64_t cols) {
    if (x.dtype == DType::kF32) {
      numbers = x.floats();
      row_stride = x.row_stride;
      col_stride = x.col_stride;
      return;
    }
    const bool by_columns = x.row_stride == 1 && x.col_stride != 1;
    by_columns ? widen(x.turned(), cols, rows, room) : widen(x, rows, cols, room);
    numbers = room;
    row_stride = by_columns ? 1 : cols;
    col_stride = by_columns ? rows : 1;
  }
};

// c [rows, cols] = the sums over columns [begin, end) of A, for a piece of at most kFew rows and
// columns from (row, col) on.
void multiply_piece(const GemmArgs& args, int64_t row, int64_t rows, int64_t col, int64_t cols,
                    int64_t begin, int64_t end, float* c) {
  Widened a, b;
  float turned[kFew * kFew];
  if (begin == end) std::fill_n(c, rows * cols, 0.0f);
  for (int64_t k = begin; k < end; k += kFew) {
    const int64_t depth = std::min(kFew, end - k);
    a.read(a_of(args).at(row, k), rows, depth);
    b.read(b_of(args).at(k, col), depth, cols);
    const bool has_rows = b.col_stride == 1;
    if (!has_rows) {
      pack_strip(StripSource{b.numbers, b.col_stride, b.row_stride}, cols, cols, depth, cols,
                 turned);
    }
    small_product(SmallProduct<float>{.m = rows,
                                      .n = cols,
                                      .depth = depth,
                                      .a = a.numbers,
                                      .a_row_stride = a.row_stride,
                                      .a_col_stride = a.col_stride,
                                      .b = has_rows ? b.numbers : turned,
                                      .b_stride = has_rows ? b.row_stride : cols,
                                      .go_on = k > begin,
                                      .c = c,
                                      .c_stride = cols});
  }
}

size_t few_bytes(int64_t m, int64_t n, int64_t k) {
  return static_cast<size_t>(m * n * divide_up(k, kBlock) * int64_t{sizeof(float)});
}

// Pieces side by side; where the depth has several blocks their sums lie in the workspace, piece by
// piece.
void multiply_few(ThreadPool& pool, const GemmArgs& args) {
  const int64_t blocks = std::max<int64_t>(1, divide_up(args.k, kBlock));
  const int64_t row_pieces = divide_up(args.m, kFew), pieces = row_pieces * divide_up(args.n, kFew);
  auto* const sums = reinterpret_cast<float*>(args.workspace);
  struct Piece {
    int64_t row, rows, col, cols;
  };
  auto piece_at = [&](int64_t i) {
    const int64_t row = i % row_pieces * kFew, col = i / row_pieces * kFew;
    return Piece{row, std::min(kFew, args.m - row), col, std::min(kFew, args.n - col)};
  };
  // Where the sums of a piece begin: those of all before it have as many numbers as C there.
  auto sums_of = [&](const Piece& piece, int64_t block) {
    const int64_t before = piece.col * args.m + piece.row * piece.cols;
    return sums + before * blocks + block * piece.rows * piece.cols;
  };
  auto round = [&](const Piece& piece, const float* c) {
    if (piece.cols == args.c_stride) {  // one row behind the other
      return from_float(args.c_type, c, result_at(args, piece.row, 0), piece.rows * piece.cols);
    }
    for (int64_t i = 0; i < piece.rows; ++i) {
      from_float(args.c_type, c + i * piece.cols, result_at(args, piece.row + i, piece.col),
                 piece.cols);
    }
  };
  const int64_t work = std::min(kFew, args.m) * std::min(kFew, args.n) *
                       std::min(kBlock, std::max<int64_t>(1, args.k));
  const int64_t grain = std::max<int64_t>(1, kGrain / work);
  pool.parallel_for(pieces * blocks, grain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const Piece piece = piece_at(i / blocks);
      const int64_t block = i % blocks, begin = block * kBlock;
      float c[kFew * kFew];
      float* const to = blocks > 1 ? sums_of(piece, block) : c;
      multiply_piece(args, piece.row, piece.rows, piece.col, piece.cols, begin,
                     std::min(args.k, begin + kBlock), to);
      if (blocks == 1) round(piece, c);
    }
  });
  if (blocks == 1) return;
  pool.parallel_for(pieces, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const Piece piece = piece_at(i);
      float* const c = sums_of(piece, 0);
      const int64_t size = piece.rows * piece.cols;
      for (int64_t block = 1; block < blocks; ++block) {
        for (int64_t t = 0; t < size; ++t) c[t] += c[block * size + t];
      }
      round(piece, c);
    }
  });
}

// y[i] = Σ_k a[i][k] · x[k]: sums over blocks of the depth side by side, in the workspace, then
// added in order.
constexpr int64_t kPieceRows = 4, kPieceCols = 256;

struct VectorArgs {
  Matrix a, x;  // x a row
  int64_t rows, depth;
  DType y_type;
  std::byte* y;
  int64_t y_stride;
};

bool is_by_vector(const GemmArgs& args) {
  const bool by_column = args.n == 1 && (args.a_col_stride == 1 || args.a_row_stride == 1);
  return args.k > 0 &&
         (by_column || (args.m == 1 && (args.b_col_stride == 1 || args.b_row_stride == 1)));
}
VectorArgs by_vector(const GemmArgs& args) {
  if (args.n == 1) {
    return {a_of(args),  b_of(args).turned(),   args.m,       args.k,
            args.c_type, result_at(args, 0, 0), args.c_stride};
  }
  return {b_of(args).turned(), a_of(args), args.n, args.k, args.c_type, result_at(args, 0, 0), 1};
}

// Rows [row, row + rows) of the sums over one block.
void sum_block_of_rows(const VectorArgs& v, int64_t row, int64_t rows, int64_t begin, int64_t end,
                       const float* x, float* sums) {
  constexpr int64_t kCols = 1024;
  for (int64_t i = 0; i < rows; i += kPieceRows) {
    const int64_t count = std::min(kPieceRows, rows - i);
    std::fill_n(sums + i, count, 0.0f);
    for (int64_t k = begin; k < end; k += kCols) {
      const int64_t cols = std::min(kCols, end - k);
      float more[kPieceRows];
      const Matrix part = v.a.at(row + i, k);
      if (part.dtype == DType::kF32) {
        dot_rows_with(part.floats(), part.row_stride, count, x + k, cols, more);
      } else {
        dot_rows_with(part.dtype, part.bits(), part.row_stride, count, x + k, cols, more);
      }
      for (int64_t t = 0; t < count; ++t) sums[i + t] += more[t];
    }
  }
}
void sum_block_of_columns(const VectorArgs& v, int64_t row, int64_t rows, int64_t begin,
                          int64_t end, const float* x, float* sums) {
  constexpr int64_t kDepth = 16;
  for (int64_t k = begin; k < end; k += kDepth) {
    const int64_t depth = std::min(kDepth, end - k);
    const Matrix part = v.a.at(row, k);
    if (part.dtype == DType::kF32) {
      sum_rows_times(part.floats(), part.col_stride, rows, x + k, 1, depth, k > begin, sums);
    } else {
      sum_rows_times(part.dtype, part.bits(), part.col_stride, rows, x + k, depth, k > begin, sums);
    }
  }
}

size_t vector_bytes(int64_t rows, int64_t depth) {
  return static_cast<size_t>((rows * divide_up(depth, kBlock) + round_up(depth, 16)) *
                             int64_t{sizeof(float)});
}

void multiply_by_vector(ThreadPool& pool, const VectorArgs& v, std::byte* workspace) {
  const int64_t blocks = divide_up(v.depth, kBlock);
  auto* const x = reinterpret_cast<float*>(workspace);
  float* const sums = x + round_up(v.depth, 16);
  widen(v.x, 1, v.depth, x);
  const bool in_rows = v.a.col_stride == 1;
  const int64_t height = in_rows ? 4 * kPieceRows : kPieceCols, pieces = divide_up(v.rows, height);
  const int64_t work = std::min(height, v.rows) * std::min(kBlock, v.depth);
  const int64_t grain = std::max<int64_t>(1, kGrain / work);
  pool.parallel_for(pieces * blocks, grain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / blocks * height, rows = std::min(height, v.rows - row);
      const int64_t block = i % blocks, begin = block * kBlock;
      (in_rows ? sum_block_of_rows : sum_block_of_columns)(
          v, row, rows, begin, std::min(v.depth, begin + kBlock), x, sums + block * v.rows + row);
    }
  });
  for (int64_t block = 1; block < blocks; ++block) {
    for (int64_t i = 0; i < v.rows; ++i) sums[i] += sums[block * v.rows + i];
  }
  if (v.y_stride == 1) return from_float(v.y_type, sums, v.y, v.rows);
  for (int64_t i = 0; i < v.rows; ++i) {
    from_float(v.y_type, sums + i, v.y + row_bytes(v.y_type, i * v.y_stride), 1);
  }
}

// A column by a row.
void multiply_outer(ThreadPool& pool, const GemmArgs& args) {
  auto* const column = reinterpret_cast<float*>(args.workspace);
  float* const row = column + round_up(args.m, 16);
  widen(a_of(args).turned(), 1, args.m, column);
  widen(b_of(args), 1, args.n, row);
  if (args.c_type == DType::kF32) {
    GemmArgs wide = args;
    wide.a = column;
    wide.b = row;
    wide.a_row_stride = wide.b_col_stride = 1;
    wide.a_type = wide.b_type = DType::kF32;
    return gemm(pool, wide);
  }
  const int64_t grain = std::max<int64_t>(1, kGrain / args.n);
  pool.parallel_for(args.m, grain, [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kPart = 1024;
    alignas(64) float piece[kPart];
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < args.n; j += kPart) {
        const int64_t count = std::min(kPart, args.n - j);
        scale_row(column[i], row + j, count, false, false, piece);
        from_float(args.c_type, piece, result_at(args, i, j), count);
      }
    }
  });
}
size_t outer_bytes(int64_t m, int64_t n) {
  return static_cast<size_t>((round_up(m, 16) + n) * int64_t{sizeof(float)});
}

bool is_bf16(const GemmArgs& args) {
  return args.a_type == DType::kBF16 && args.b_type == DType::kBF16;
}

// Whether float32 is multiplied on tiles, which want both operands whole.
bool is_widened_first(const GemmArgs& args) {
  return !is_bf16(args) && gemm_takes_bf16(args.m, args.n, args.k) && tile_unit() != nullptr;
}

// In float32 in blocks, to the result of `wide`.
void multiply_blocks(ThreadPool& pool, const GemmArgs& args, const GemmArgs& wide) {
  auto pack = [](const Matrix& x, const StripRequest& want) {
    if (x.dtype == DType::kF32) {
      return pack_strip(StripSource{x.at(want.row, want.k).floats(), x.row_stride, x.col_stride},
                        want.rows, want.padded_rows, want.depth, want.padded_rows, want.panel);
    }
    const int64_t most = kScratchFloats / want.rows;
    for (int64_t k = 0; k < want.depth; k += most) {
      const int64_t depth = std::min(most, want.depth - k);
      const Matrix part = x.at(want.row, want.k + k);
      StripSource wide{want.scratch, depth, 1};
      if (x.row_stride == 1 && x.col_stride != 1) {
        widen(part.turned(), depth, want.rows, want.scratch);
        wide = {want.scratch, 1, want.rows};
      } else {
        widen(part, want.rows, depth, want.scratch);
      }
      pack_strip(wide, want.rows, want.padded_rows, depth, want.padded_rows,
                 want.panel + k * want.padded_rows);
    }
  };
  auto pack_a = [&](const StripRequest& want) { pack(a_of(args), want); };
  auto pack_b = [&](const StripRequest& want) { pack(b_of(args).turned(), want); };
  blocked_product(pool, {.m = args.m,
                         .n = args.n,
                         .k = args.k,
                         .pack_a = pack_a,
                         .pack_b = pack_b,
                         .a_depth = args.a_col_stride == 1 ? kBlockDepth : kColumnDepth,
                         .b_depth = args.b_row_stride == 1 ? kBlockDepth : kColumnDepth,
                         .c = wide.c,
                         .c_stride = wide.c_stride,
                         .workspace = wide.workspace,
                         .epilogue = wide.epilogue});
}

int64_t bytes_of_floats(int64_t count) {
  return round_up(count * int64_t{sizeof(float)}, 64);
}

}  // namespace

size_t gemm_narrow_workspace_bytes(const NarrowTypes& types, int64_t m, int64_t n, int64_t k,
                                   int threads) {
  int64_t floats = types.c == DType::kF32 ? 0 : bytes_of_floats(m * n);
  if (types.a != DType::kBF16 || types.b != DType::kBF16) {
    floats += types.a == DType::kF32 ? 0 : bytes_of_floats(m * k);
    floats += types.b == DType::kF32 ? 0 : bytes_of_floats(k * n);
  }
  const size_t bytes =
      std::max(static_cast<size_t>(floats) + gemm_workspace_bytes(m, n, k, threads),
               few_bytes(m, n, m <= kFew || n <= kFew ? k : 0));
  if (m == 1 || n == 1) return std::max(bytes, vector_bytes(std::max(m, n), k));
  return k == 1 ? std::max(bytes, outer_bytes(m, n)) : bytes;
}

void gemm_narrow(ThreadPool& pool, const GemmArgs& args) {
  if (args.m == 0 || args.n == 0) return;
  // What is not given to another product that does it.
  auto finish = [&] {
    if (args.epilogue == nullptr) return;
    const int64_t grain = std::max<int64_t>(1, kGrain / args.n);
    pool.parallel_for(args.m, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        (*args.epilogue)(i, 0, args.n, args.c + i * args.c_stride);
      }
    });
  };
  if (args.m <= kFew && args.n <= kFew && args.k <= kFew) {
    multiply_few(pool, args);
    return finish();
  }
  if (is_by_vector(args)) {
    multiply_by_vector(pool, by_vector(args), args.workspace);
    return finish();
  }
  if (args.k == 1) return multiply_outer(pool, args);
  GemmArgs product = args;
  product.bf16 = is_bf16(args);
  if (product.bf16 && gemm_gives_bf16(args.m, args.n, args.k)) return gemm(pool, product);
  if (args.m <= kFew || args.n <= kFew) {
    multiply_few(pool, args);
    return finish();
  }

  std::byte* workspace = args.workspace;
  auto take_floats = [&](int64_t count) {
    auto* const floats = reinterpret_cast<float*>(workspace);
    workspace += bytes_of_floats(count);
    return floats;
  };
  auto round = [&](int64_t row, int64_t begin, int64_t end, float* piece) {
    from_float(args.c_type, piece, result_at(args, row, begin), end - begin);
  };
  const Epilogue rounded = round;
  if (args.c_type != DType::kF32) {
    product.c = take_floats(args.m * args.n);
    product.c_stride = args.n;
    product.c_type = DType::kF32;
    product.epilogue = &rounded;
  }
  product.workspace = workspace;
  if (product.bf16 && gemm_takes_bf16(args.m, args.n, args.k)) return gemm(pool, product);
  if (!is_widened_first(args)) return multiply_blocks(pool, args, product);
  auto widen_whole = [&](const Matrix& x, int64_t rows, int64_t cols) {
    auto* const wide = take_floats(rows * cols);
    copy(pool, x.dtype, x.x, {x.row_stride, x.col_stride}, {rows, cols}, DType::kF32,
         reinterpret_cast<std::byte*>(wide));
    return wide;
  };
  if (args.a_type != DType::kF32) {
    product.a = widen_whole(a_of(args), args.m, args.k);
    product.a_row_stride = args.k;
    product.a_col_stride = 1;
  }
  if (args.b_type != DType::kF32) {
    product.b = widen_whole(b_of(args), args.k, args.n);
    product.b_row_stride = args.n;
    product.b_col_stride = 1;
  }
  product.workspace = workspace;
  product.a_type = product.b_type = DType::kF32;
  gemm(pool, product);
}

}  // namespace lumen::kernels
