// How programs run: chunk by chunk of the result, or of a piece of it.
#include <algorithm>
#include <cstring>

#include "lib/base/prefetch.h"
#include "lib/base/round_up.h"
#include "lib/graph/program.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/streaming.h"
#include "lib/kernels/transpose.h"

namespace lumen::graph {
namespace {

constexpr int kMaxRegisters = Program::kMaxInputs + Program::kMaxInstructions;
// Below this many elements per thread a barrier costs more than it saves.
constexpr int64_t kParallelGrain = 8192;
// So many rows for each thread are enough.
constexpr int64_t kManyRows = 8;
// Of an element that is not part of a block.
constexpr int64_t kMostBytes = 8;
// Fewer rows than this are not worth turning.
constexpr int64_t kLeastTurned = 4;
// How far ahead of an epilogue its operands are fetched.
constexpr int64_t kRowsAhead = 4;

// What a program that computes in T, float or double, has at once, and its type.
template <class T>
constexpr int64_t kChunk = Program::kChunk* int64_t{sizeof(float)} / int64_t{sizeof(T)};
template <class T>
constexpr DType kTypeOf = sizeof(T) == sizeof(float) ? DType::kF32 : DType::kF64;

bool is_narrow(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

void convert(DType dtype, const std::byte* x, int64_t n, float* y) {
  kernels::to_float(dtype, x, y, n);
}
void convert(DType dtype, const std::byte* x, int64_t n, double* y) {
  kernels::load_typed(dtype, x, 1, n, y);
}

// Loads `n` elements at `data` as numbers of T: in place if they already are, else into `scratch`.
template <class T>
const T* load(const std::byte* data, DType dtype, int64_t stride, int64_t n, T* scratch) {
  const bool fits = dtype == kTypeOf<T>;
  if (stride == 1 || n == 1) {
    if (fits) return reinterpret_cast<const T*>(data);
    convert(dtype, data, n, scratch);
    return scratch;
  }
  if (stride == 0) {
    T value;
    fits ? void(std::memcpy(&value, data, sizeof value)) : convert(dtype, data, 1, &value);
    std::fill_n(scratch, n, value);
    return scratch;
  }
  const auto size = static_cast<int>(info(dtype).block_bytes);
  if (fits) {
    kernels::transpose(size, data, stride, 1, n, n, reinterpret_cast<std::byte*>(scratch));
    return scratch;
  }
  alignas(64) std::byte gathered[Program::kChunk * kMostBytes];
  kernels::transpose(size, data, stride, 1, n, n, gathered);
  convert(dtype, gathered, n, scratch);
  return scratch;
}

// The same into `scratch` wherever they lie.
template <class T>
void copy(const std::byte* data, DType dtype, int64_t stride, int64_t n, T* scratch) {
  const T* const from = load(data, dtype, stride, n, scratch);
  if (from != scratch) std::copy_n(from, n, scratch);
}

// A piece of rows and columns of the operands whose columns, not rows, lie together, turned: their
// lines are read once for all rows.
struct Turned {
  static constexpr int64_t kRows = 32, kColumns = 128;

  const std::byte* at(size_t input, int64_t of_row, int64_t size) const {
    return elements[input] + (of_row - row) * columns * size;
  }

  int64_t row, columns;  // the first row, and how many columns there are
  alignas(64) std::byte elements[Program::kMaxInputs][kRows * kColumns * kMostBytes];
};

// Operand i that cannot be read where it lies has storage[i]; behind them are the results' places.
template <class T>
struct Registers {
  explicit Registers(const Program& program) {
    for (size_t i = 0; i + 1 < program.code.size(); ++i) {
      result[i] = storage[Program::kMaxInputs + std::max(program.places[i], 0)];
      value[static_cast<size_t>(program.inputs) + i] = result[i];
    }
  }

  alignas(64) T storage[kMaxRegisters][kChunk<T>];
  const T* value[kMaxRegisters];
  T* result[Program::kMaxInstructions];
};

void run_block(const OpDef& op, const float* const* in, float* out, int64_t n) {
  op.block(in, out, n, nullptr);
}
void run_block(const OpDef& op, const double* const* in, double* out, int64_t n) {
  op.block_f64(in, out, n);
}

void run_steps(std::span<const kernels::ChainStep> steps, Registers<float>& registers, int64_t n,
               const kernels::NarrowResult& narrow, uint32_t singles) {
  kernels::run_chain(steps, registers.value, registers.result, n, narrow, singles);
}
void run_steps(std::span<const kernels::ChainStep> steps, Registers<double>& registers, int64_t n,
               const kernels::NarrowResult&, uint32_t singles) {
  kernels::run_chain(steps, registers.value, registers.result, n, singles);
}

// Runs the code on a loaded chunk; the last result goes to `out`, or to `narrow` if that says
// where, which takes a step of a chain. Operand i is one number if bit i of `singles` is set, for
// which all have to be such steps.
template <class T>
void run_code(const Program& program, Registers<T>& registers, int64_t n, T* out,
              const kernels::NarrowResult& narrow = {}, uint32_t singles = 0) {
  registers.result[program.code.size() - 1] = out;
  for (const Program::Part& part : program.parts) {
    const bool gives_narrow = narrow.to != nullptr && &part == &program.parts.back();
    if (part.is_chain || gives_narrow || singles != 0) {
      const auto steps = std::span(program.steps).subspan(part.begin, part.end - part.begin);
      run_steps(steps, registers, n, gives_narrow ? narrow : kernels::NarrowResult{}, singles);
      continue;
    }
    const auto& instruction = program.code[part.begin];
    const T* arguments[kernels::kMaxArguments];
    for (size_t a = 0; a < instruction.arguments.size(); ++a) {
      arguments[a] = registers.value[instruction.arguments[a]];
    }
    run_block(*instruction.op, arguments, registers.result[part.begin], n);
  }
}

// Whether an operand is numbers that bfloat16 holds: of types that are, or a single one that is.
bool is_bf16(const Operand& x) {
  if (fits_bf16(x.dtype)) return true;
  const bool is_one = std::all_of(x.strides.begin(), x.strides.begin() + x.shape.rank(),
                                  [](int64_t stride) { return stride == 0; });
  if (x.dtype != DType::kF32 || !is_one) return false;
  return fits_bf16(*x.as<const float>());
}

// The result as a matrix [rows, columns] such that every operand advances by one stride along a
// row: axes that all operands walk as one are joined. Rows of which a chunk holds several are
// computed `together` so, within the last but one axis.
struct Pieces {
  Pieces(const KernelCall& call, const Program& program, int64_t full_chunk);

  // An operand as it is read along a row, or some rows.
  struct Source {
    const std::byte* data;
    DType dtype;
    int64_t size;                // bytes of an element
    int64_t stride, row_stride;  // elements from one column, one row to the next
    bool is_single;              // one number for all that is computed at once
    bool in_place;               // read where it lies
    bool joins;                  // rows computed together lie behind one another
  };

  int64_t rows = 1, columns = 1;
  int64_t lines = 1;      // rows of the last but one axis
  int64_t together = 1;   // rows
  int64_t chunk;          // elements computed at once
  bool streamed = false;  // a large result that takes no input's place
  bool chained = false;   // a narrow result of a step of a chain
  bool cut = false;       // one of bfloat16 numbers, which are not rounded
  bool turns = false;     // some input, in the piece of it that is computed
  bool fetched = false;   // operands and result are more than the last cache holds: fetch ahead
  uint32_t singles = 0;   // bit i: operand i is one number, in chains

  int inputs = 0;
  Source sources[Program::kMaxInputs];

  int rank = 0;  // of the joined axes, the last of which is that of the columns
  int64_t dims[Shape::kMaxRank];
  int64_t strides[Program::kMaxInputs][Shape::kMaxRank];

  // Whether an input's columns lie together, in lines long enough to turn them.
  bool is_turned(size_t input) const {
    return rank > 1 && dims[rank - 2] >= kLeastTurned && column_stride(input) > 1 &&
           row_stride(input) == 1;
  }

  int64_t column_stride(size_t input) const { return rank > 0 ? strides[input][rank - 1] : 0; }
  int64_t row_stride(size_t input) const { return rank > 1 ? strides[input][rank - 2] : 0; }
  int64_t row_offset(size_t input, int64_t row) const {
    int64_t offset = 0;
    for (int axis = rank - 2; axis > 0; --axis) {
      offset += row % dims[axis] * strides[input][axis];
      row /= dims[axis];
    }
    return rank > 1 ? offset + row * strides[input][0] : 0;
  }

 private:
  void join_axes(const KernelCall& call);
  void place_operands(const KernelCall& call, const Program& program, bool is_simple);
};

void Pieces::join_axes(const KernelCall& call) {
  const Shape& shape = call.output.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    auto stride = [&](size_t i) { return call.inputs[i].strides[static_cast<size_t>(axis)]; };
    bool joins = rank > 0;
    for (size_t i = 0; joins && i < call.inputs.size(); ++i) {
      joins = strides[i][rank - 1] == stride(i) * shape[axis];
    }
    if (!joins) dims[rank++] = 1;
    dims[rank - 1] *= shape[axis];
    for (size_t i = 0; i < call.inputs.size(); ++i) strides[i][rank - 1] = stride(i);
  }
  if (rank > 0) columns = dims[rank - 1];
  if (rank > 1) lines = dims[rank - 2];
  rows = columns > 0 ? shape.elements() / columns : 0;
}

// How operands are read; `is_simple`: chains compute all.
void Pieces::place_operands(const KernelCall& call, const Program& program, bool is_simple) {
  inputs = static_cast<int>(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Operand& x = call.inputs[i];
    const int64_t stride = column_stride(i), next = row_stride(i);
    const bool joins = stride == 1 && (together == 1 || next == columns);
    const bool is_single = is_simple && stride == 0 && (together == 1 || next == 0);
    const bool is_own = x.dtype == program.dtype;
    if (is_single) singles |= uint32_t{1} << i;
    sources[i] = {x.data, x.dtype,   info(x.dtype).block_bytes,      stride,
                  next,   is_single, is_own && (joins || is_single), joins};
  }
}

Pieces::Pieces(const KernelCall& call, const Program& program, int64_t full_chunk)
    : chunk(full_chunk) {
  join_axes(call);
  const DType to = call.output.dtype;
  const int64_t elements = call.output.shape.elements();
  for (size_t i = 0; i < call.inputs.size(); ++i) turns |= is_turned(i);
  int64_t bytes = elements * info(to).block_bytes;
  for (const Operand& x : call.inputs) bytes += elements * info(x.dtype).block_bytes;
  fetched = kernels::streams(bytes);
  streamed = to == program.dtype && kernels::streams(elements * info(to).block_bytes) &&
             std::none_of(call.inputs.begin(), call.inputs.end(),
                          [&](const Operand& x) { return x.data == call.output.data; });
  const bool is_simple = std::ranges::all_of(program.steps, [](const kernels::ChainStep& step) {
    return step.op != kernels::TypedOp::kNone;
  });
  chained = is_narrow(to) && program.steps.back().op != kernels::TypedOp::kNone;
  cut = chained && to == DType::kBF16 && chooses(program) &&
        std::all_of(call.inputs.begin(), call.inputs.end(), is_bf16);
  if (!turns && columns > 0) together = std::clamp<int64_t>(chunk / columns, 1, lines);
  place_operands(call, program, is_simple);
  // Of what takes long few lines are asked for at once: a core cannot wait for many.
  if (fetched && !is_simple) chunk /= 2;
  // What needs no registers is computed at once.
  const bool needs_none =
      (to == program.dtype || chained) &&
      std::all_of(sources, sources + inputs, [](const Source& x) { return x.in_place; }) &&
      std::ranges::all_of(program.places, [](int place) { return place < 0; });
  if (!fetched && !streamed && needs_none) chunk = columns;
}

// Has `n` elements from element `at` of the result on computed from loaded registers.
template <class T>
void compute(const Program& program, const KernelCall& call, const Pieces& pieces, int64_t at,
             int64_t n, Registers<T>& registers) {
  const DType to = call.output.dtype;
  std::byte* const target = call.output.data + at * info(to).block_bytes;
  T* const last = registers.storage[kMaxRegisters - 1];
  if (pieces.fetched && !pieces.streamed) prefetch_written(target, n * info(to).block_bytes);
  if (to == kTypeOf<T> && !pieces.streamed) {
    run_code(program, registers, n, reinterpret_cast<T*>(target), {}, pieces.singles);
    return;
  }
  if (pieces.chained) {
    const kernels::NarrowResult narrow = {reinterpret_cast<uint16_t*>(target), to == DType::kF16,
                                          pieces.cut};
    run_code(program, registers, n, last, narrow, pieces.singles);
    return;
  }
  run_code(program, registers, n, last, {}, pieces.singles);
  if (pieces.streamed) {
    constexpr auto kFloats = static_cast<int64_t>(sizeof(T) / sizeof(float));
    kernels::stream(reinterpret_cast<const float*>(last), n * kFloats,
                    reinterpret_cast<float*>(target));
  } else if constexpr (sizeof(T) == sizeof(float)) {
    kernels::from_float(to, last, target, n);
  }
}

// `turned` holds this piece of the operands that are turned, if any is.
template <class T>
void run_piece(const Program& program, const KernelCall& call, const Pieces& pieces, int64_t row,
               int64_t begin, int64_t end, Registers<T>& registers,
               const Turned* turned = nullptr) {
  // A chunk of a step of two instructions is computed before memory answers.
  constexpr int64_t kAhead = 2 * kChunk<T>;
  const std::byte* rows[Program::kMaxInputs];
  for (int i = 0; i < pieces.inputs; ++i) {
    rows[i] = pieces.sources[i].data + pieces.row_offset(i, row) * pieces.sources[i].size;
  }
  for (int64_t at = begin; at < end; at += pieces.chunk) {
    const int64_t n = std::min(pieces.chunk, end - at);
    for (int i = 0; i < pieces.inputs; ++i) {
      const Pieces::Source& x = pieces.sources[i];
      // A single value stays in its register from the first chunk on, which is the longest.
      if (at > begin && x.stride == 0) continue;
      if (turned != nullptr && pieces.is_turned(i)) {
        const std::byte* from = turned->at(i, row, x.size);
        registers.value[i] = load(from, x.dtype, 1, n, registers.storage[i]);
        continue;
      }
      const std::byte* from = rows[i] + at * x.stride * x.size;
      // An operand that is not read first is not read while the instructions before its own
      // compute.
      if (pieces.fetched && x.stride == 1 && at + kAhead < end) {
        prefetch(from + kAhead * x.size, pieces.chunk * x.size);
      }
      registers.value[i] =
          x.in_place ? reinterpret_cast<const T*>(from)
                     : load(from, x.dtype, x.stride, x.is_single ? 1 : n, registers.storage[i]);
    }
    compute(program, call, pieces, row * pieces.columns + at, n, registers);
  }
}

// Rows [begin, end), several together.
template <class T>
void run_rows(const Program& program, const KernelCall& call, const Pieces& pieces, int64_t begin,
              int64_t end, Registers<T>& registers) {
  // What the storage of an operand that is the same for all rows holds, for how many rows.
  const std::byte* repeated[Program::kMaxInputs] = {};
  int64_t repeats[Program::kMaxInputs] = {};
  const int64_t columns = pieces.columns;
  for (int64_t row = begin, rows; row < end; row += rows) {
    rows = std::min({pieces.together, end - row, pieces.lines - row % pieces.lines});
    const int64_t n = rows * columns;
    for (int i = 0; i < pieces.inputs; ++i) {
      const Pieces::Source& x = pieces.sources[i];
      const std::byte* const from = x.data + pieces.row_offset(i, row) * x.size;
      T* const to = registers.storage[i];
      if (x.in_place) {
        registers.value[i] = reinterpret_cast<const T*>(from);
      } else if (x.joins || x.is_single) {
        registers.value[i] = load(from, x.dtype, 1, x.is_single ? 1 : n, to);
      } else if (x.row_stride == 0) {
        registers.value[i] = to;
        if (repeated[i] == from && repeats[i] >= rows) continue;
        repeated[i] = from;
        repeats[i] = rows;
        copy(from, x.dtype, x.stride, columns, to);
        for (int64_t done = columns; done < n; done += std::min(done, n - done)) {
          std::copy_n(to, std::min(done, n - done), to + done);
        }
      } else {
        registers.value[i] = to;
        for (int64_t r = 0; r < rows; ++r) {
          copy(from + r * x.row_stride * x.size, x.dtype, x.stride, columns, to + r * columns);
        }
      }
    }
    compute(program, call, pieces, row * columns, n, registers);
  }
}

// Rows [begin, end) of operands of which some are turned.
template <class T>
void run_turned(const Program& program, const KernelCall& call, const Pieces& pieces, int64_t begin,
                int64_t end, Registers<T>& registers) {
  Turned turned;
  for (int64_t row = begin, rows; row < end; row += rows) {
    rows = std::min({Turned::kRows, end - row, pieces.lines - row % pieces.lines});
    turned.row = row;
    for (int64_t at = 0; at < pieces.columns; at += Turned::kColumns) {
      turned.columns = std::min(Turned::kColumns, pieces.columns - at);
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        if (!pieces.is_turned(i)) continue;
        const Pieces::Source& x = pieces.sources[i];
        kernels::transpose(static_cast<int>(x.size),
                           x.data + (pieces.row_offset(i, row) + at * x.stride) * x.size, x.stride,
                           rows, turned.columns, turned.columns, turned.elements[i]);
      }
      for (int64_t r = row; r < row + rows; ++r) {
        run_piece(program, call, pieces, r, at, at + turned.columns, registers, &turned);
      }
    }
  }
}

template <class T>
void run_in(const KernelCall& call) {
  const Program& program = *call.node->epilogue;
  const Pieces pieces(call, program, kChunk<T>);
  // Parallel over whole rows when there are many, over columns of the few rows otherwise.
  if (pieces.rows >= std::min(pieces.columns, kManyRows * call.pool->threads())) {
    const int64_t grain =
        std::max<int64_t>(1, kParallelGrain / std::max<int64_t>(1, pieces.columns));
    int64_t share = call.pool->eighth(pieces.rows, grain);
    if (pieces.turns) {
      const int64_t each = divide_up(pieces.rows, call.pool->threads());
      share = std::max(share, std::min(Turned::kRows, each));
    }
    call.pool->parallel_pieces(pieces.rows, grain, share, [&](int64_t begin, int64_t end, int) {
      Registers<T> registers(program);
      if (pieces.turns) {
        run_turned(program, call, pieces, begin, end, registers);
      } else if (pieces.together > 1) {
        run_rows(program, call, pieces, begin, end, registers);
      } else {
        for (int64_t row = begin; row < end; ++row) {
          run_piece(program, call, pieces, row, 0, pieces.columns, registers);
        }
      }
      if (pieces.streamed) kernels::finish_streams();
    });
    return;
  }
  const int64_t grain = std::max(
      kChunk<T>, kParallelGrain / std::max<int64_t>(1, pieces.rows) / kChunk<T> * kChunk<T>);
  const int64_t share = call.pool->eighth(pieces.columns, grain);
  call.pool->parallel_pieces(pieces.columns, grain, share, [&](int64_t begin, int64_t end, int) {
    Registers<T> registers(program);
    for (int64_t row = 0; row < pieces.rows; ++row) {
      run_piece(program, call, pieces, row, begin, end, registers);
    }
    if (pieces.streamed) kernels::finish_streams();
  });
}

}  // namespace

void run_elementwise(const KernelCall& call) {
  if (call.node->epilogue->dtype == DType::kF64) return run_in<double>(call);
  run_in<float>(call);
}

void run_program(const Program& program, std::span<const float* const> operands, int64_t n,
                 float* out) {
  Registers<float> registers(program);
  for (int64_t at = 0; at < n; at += Program::kChunk) {
    for (size_t i = 0; i < operands.size(); ++i) registers.value[i] = operands[i] + at;
    run_code(program, registers, std::min(Program::kChunk, n - at), out + at);
  }
}

void run_epilogue(const Program& program, std::span<const RowOperand> operands, int64_t row,
                  int64_t begin, int64_t end, float* result) {
  Registers<float> registers(program);
  for (int64_t at = begin; at < end; at += Program::kChunk) {
    const int64_t n = std::min(Program::kChunk, end - at);
    float* piece = result + (at - begin);
    registers.value[0] = piece;
    for (size_t i = 0; i < operands.size(); ++i) {
      const RowOperand& x = operands[i];
      const int64_t offset = row * x.row_stride + at * x.column_stride;
      const int64_t size = info(x.dtype).block_bytes;
      const std::byte* from = x.data + offset * size;
      // Rows follow one another, each too short for the processor to foresee the next.
      if (x.column_stride == 1) prefetch(from + kRowsAhead * x.row_stride * size, n * size);
      registers.value[i + 1] = load(from, x.dtype, x.column_stride, n, registers.storage[i + 1]);
    }
    run_code(program, registers, n, piece);
  }
}

}  // namespace lumen::graph
