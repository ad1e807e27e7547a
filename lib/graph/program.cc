#include "lib/graph/program.h"

#include <algorithm>
#include <bit>

#include "lib/base/prefetch.h"
#include "lib/base/round_up.h"
#include "lib/base/strings.h"
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
// How far ahead of a chunk its operands are fetched: a chunk of a step of two instructions is
// computed before memory answers.
constexpr int64_t kChunkAhead = 2 * Program::kChunk;
// How far ahead of an epilogue its operands are fetched.
constexpr int64_t kRowsAhead = 4;

// Loads `n` elements at `data` as floats: in place if they already are, else into `scratch`.
const float* load(const std::byte* data, DType dtype, int64_t stride, int64_t n, float* scratch) {
  if (stride == 1 || n == 1) {
    if (dtype == DType::kF32) return reinterpret_cast<const float*>(data);
    kernels::to_float(dtype, data, scratch, n);
    return scratch;
  }
  const int64_t size = info(dtype).block_bytes;
  if (stride == 0) {
    float value;
    kernels::to_float(dtype, data, &value, 1);
    std::fill_n(scratch, n, value);
    return scratch;
  }
  if (dtype == DType::kF32) {
    kernels::transpose(static_cast<int>(size), data, stride, 1, n, n,
                       reinterpret_cast<std::byte*>(scratch));
    return scratch;
  }
  alignas(64) std::byte gathered[Program::kChunk * kMostBytes];
  kernels::transpose(static_cast<int>(size), data, stride, 1, n, n, gathered);
  kernels::to_float(dtype, gathered, scratch, n);
  return scratch;
}

// A piece of rows and columns of the operands whose columns, not rows, lie together, turned: their
// lines are read once for all rows.
struct Turned {
  static constexpr int64_t kRows = 32, kColumns = 128;

  const std::byte* at(size_t input, int64_t of_row, int size) const {
    return elements[input] + (of_row - row) * columns * size;
  }

  int64_t row, columns;  // the first row, and how many columns there are
  alignas(64) std::byte elements[Program::kMaxInputs][kRows * kColumns * kMostBytes];
};

// Operand i that cannot be read where it lies has storage[i]; behind them are the results' places.
struct Registers {
  explicit Registers(const Program& program) {
    for (size_t i = 0; i + 1 < program.code.size(); ++i) {
      result[i] = storage[Program::kMaxInputs + std::max(program.places[i], 0)];
      value[static_cast<size_t>(program.inputs) + i] = result[i];
    }
  }

  alignas(64) float storage[kMaxRegisters][Program::kChunk];
  const float* value[kMaxRegisters];
  float* result[Program::kMaxInstructions];
};

// Runs the code on a loaded chunk; the last result goes to `out`, or to `narrow` if that says
// where, which takes a step of a chain. Operand i is one number if bit i of `singles` is set, for
// which all have to be such steps.
void run_code(const Program& program, Registers& registers, int64_t n, float* out,
              kernels::Bf16Result narrow = {}, uint32_t singles = 0) {
  registers.result[program.code.size() - 1] = out;
  for (const Program::Part& part : program.parts) {
    const bool gives_narrow = narrow.to != nullptr && &part == &program.parts.back();
    if (part.is_chain || gives_narrow || singles != 0) {
      const auto steps = std::span(program.steps).subspan(part.begin, part.end - part.begin);
      kernels::run_chain(steps, registers.value, registers.result, n,
                         gives_narrow ? narrow : kernels::Bf16Result{}, singles);
      continue;
    }
    const auto& instruction = program.code[part.begin];
    const float* arguments[kernels::kMaxArguments];
    for (size_t a = 0; a < instruction.arguments.size(); ++a) {
      arguments[a] = registers.value[instruction.arguments[a]];
    }
    instruction.op->block(arguments, registers.result[part.begin], n, nullptr);
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
// row: axes that all operands walk as one are joined.
struct Pieces {
  int64_t rows = 1, columns = 1;
  bool streamed = false;  // a large float32 result that takes no input's place
  bool chained = false;   // a bfloat16 result of a step of a chain
  bool cut = false;       // one of bfloat16 numbers, which are not rounded
  bool turns = false;     // some input, in the piece of it that is computed
  bool fetched = false;   // operands and result are more than the last cache holds: fetch ahead
  int64_t chunk = Program::kChunk;  // elements computed at once
  uint32_t singles = 0;             // bit i: operand i is one number for a row

  // An operand as it is read along a row.
  struct Source {
    const std::byte* data;
    DType dtype;
    int64_t size, stride;  // bytes of an element; elements from one column to the next
    bool is_single;        // one number for a row
    bool in_place;         // of float32 that needs no register
  };
  int inputs = 0;
  Source sources[Program::kMaxInputs];

  int rank = 0;  // of the joined axes, the last of which is that of the columns
  int64_t dims[Shape::kMaxRank];
  int64_t strides[Program::kMaxInputs][Shape::kMaxRank];

  // Whether an input's columns lie together, in lines long enough to turn them.
  bool is_turned(size_t input) const {
    return rank > 1 && dims[rank - 2] >= kLeastTurned && column_stride(input) > 1 &&
           strides[input][rank - 2] == 1;
  }

  int64_t column_stride(size_t input) const { return rank > 0 ? strides[input][rank - 1] : 0; }
  int64_t row_offset(size_t input, int64_t row) const {
    int64_t offset = 0;
    for (int axis = rank - 2; axis > 0; --axis) {
      offset += row % dims[axis] * strides[input][axis];
      row /= dims[axis];
    }
    return rank > 1 ? offset + row * strides[input][0] : 0;
  }
};

// Whether operands and results are read and written where they lie.
bool needs_no_registers(const KernelCall& call, const Program& program, const Pieces& pieces) {
  if (call.output.dtype != DType::kF32 ||
      std::ranges::any_of(program.places, [](int place) { return place >= 0; })) {
    return false;
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if ((pieces.singles >> i & 1) != 0) continue;
    if (call.inputs[i].dtype != DType::kF32 || pieces.column_stride(i) != 1) return false;
  }
  return true;
}

Pieces pieces_of(const KernelCall& call, const Program& program) {
  const Shape& shape = call.output.shape;
  Pieces pieces;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    auto stride = [&](size_t i) { return call.inputs[i].strides[static_cast<size_t>(axis)]; };
    bool joins = pieces.rank > 0;
    for (size_t i = 0; joins && i < call.inputs.size(); ++i) {
      joins = pieces.strides[i][pieces.rank - 1] == stride(i) * shape[axis];
    }
    if (!joins) pieces.dims[pieces.rank++] = 1;
    pieces.dims[pieces.rank - 1] *= shape[axis];
    for (size_t i = 0; i < call.inputs.size(); ++i) pieces.strides[i][pieces.rank - 1] = stride(i);
  }
  if (pieces.rank > 0) pieces.columns = pieces.dims[pieces.rank - 1];
  pieces.rows = pieces.columns > 0 ? shape.elements() / pieces.columns : 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) pieces.turns |= pieces.is_turned(i);
  int64_t bytes = shape.elements() * info(call.output.dtype).block_bytes;
  for (const Operand& x : call.inputs) bytes += shape.elements() * info(x.dtype).block_bytes;
  pieces.fetched = kernels::streams(bytes);
  pieces.streamed = call.output.dtype == DType::kF32 &&
                    kernels::streams(shape.elements() * int64_t{sizeof(float)}) &&
                    std::none_of(call.inputs.begin(), call.inputs.end(),
                                 [&](const Operand& x) { return x.data == call.output.data; });
  const bool is_simple = std::ranges::all_of(program.steps, [](const kernels::ChainStep& step) {
    return step.op != kernels::TypedOp::kNone;
  });
  for (size_t i = 0; is_simple && i < call.inputs.size(); ++i) {
    if (pieces.column_stride(i) == 0) pieces.singles |= uint32_t{1} << i;
  }
  // Of what takes long few lines are asked for at once: a core cannot wait for many.
  if (pieces.fetched && !is_simple) pieces.chunk = Program::kChunk / 2;
  if (!pieces.fetched && !pieces.streamed && needs_no_registers(call, program, pieces)) {
    pieces.chunk = pieces.columns;
  }
  pieces.inputs = static_cast<int>(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Operand& x = call.inputs[i];
    const int64_t stride = pieces.column_stride(i);
    const bool is_single = (pieces.singles >> i & 1) != 0;
    pieces.sources[i] = {x.data, x.dtype,   info(x.dtype).block_bytes,
                         stride, is_single, x.dtype == DType::kF32 && (stride == 1 || is_single)};
  }
  pieces.chained = call.output.dtype == DType::kBF16 &&
                   simple_form(*program.code.back().op) != kernels::TypedOp::kNone;
  pieces.cut = pieces.chained && chooses(program) &&
               std::all_of(call.inputs.begin(), call.inputs.end(), is_bf16);
  return pieces;
}

// `turned` holds this piece of the operands that are turned, if any is.
void run_piece(const Program& program, const KernelCall& call, const Pieces& pieces, int64_t row,
               int64_t begin, int64_t end, Registers& registers, const Turned* turned = nullptr) {
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
        const std::byte* from = turned->at(i, row, static_cast<int>(x.size));
        registers.value[i] = load(from, x.dtype, 1, n, registers.storage[i]);
        continue;
      }
      const std::byte* from = rows[i] + at * x.stride * x.size;
      // An operand that is not read first is not read while the instructions before its own
      // compute.
      if (pieces.fetched && x.stride == 1 && at + kChunkAhead < end) {
        prefetch(from + kChunkAhead * x.size, pieces.chunk * x.size);
      }
      registers.value[i] =
          x.in_place ? reinterpret_cast<const float*>(from)
                     : load(from, x.dtype, x.stride, x.is_single ? 1 : n, registers.storage[i]);
    }
    const int64_t element = row * pieces.columns + at;
    std::byte* target = call.output.data + element * info(call.output.dtype).block_bytes;
    const DType to = call.output.dtype;
    float* last = registers.storage[kMaxRegisters - 1];
    if (pieces.fetched && !pieces.streamed) prefetch_written(target, n * info(to).block_bytes);
    if (to == DType::kF32 && !pieces.streamed) {
      run_code(program, registers, n, reinterpret_cast<float*>(target), {}, pieces.singles);
      continue;
    }
    if (pieces.chained) {
      run_code(program, registers, n, last, {reinterpret_cast<uint16_t*>(target), pieces.cut},
               pieces.singles);
      continue;
    }
    run_code(program, registers, n, last, {}, pieces.singles);
    if (pieces.streamed) {
      kernels::stream(last, n, reinterpret_cast<float*>(target));
    } else {
      kernels::from_float(to, last, target, n);
    }
  }
}

// Rows [begin, end) of operands of which some are turned.
void run_turned(const Program& program, const KernelCall& call, const Pieces& pieces, int64_t begin,
                int64_t end, Registers& registers) {
  Turned turned;
  const int64_t lines = pieces.dims[pieces.rank - 2];
  for (int64_t row = begin, rows; row < end; row += rows) {
    rows = std::min({Turned::kRows, end - row, lines - row % lines});
    turned.row = row;
    for (int64_t at = 0; at < pieces.columns; at += Turned::kColumns) {
      turned.columns = std::min(Turned::kColumns, pieces.columns - at);
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        if (!pieces.is_turned(i)) continue;
        const Operand& x = call.inputs[i];
        const int size = info(x.dtype).block_bytes;
        const int64_t stride = pieces.column_stride(i);
        kernels::transpose(size, x.data + (pieces.row_offset(i, row) + at * stride) * size, stride,
                           rows, turned.columns, turned.columns, turned.elements[i]);
      }
      for (int64_t r = row; r < row + rows; ++r) {
        run_piece(program, call, pieces, r, at, at + turned.columns, registers, &turned);
      }
    }
  }
}

// The block function of kToBf16 and kToF16.
template <DType kType>
void round_to(const float* const* in, float* out, int64_t n, const float*) {
  uint16_t narrow[Program::kChunk];
  for (int64_t i = 0; i < n; i += Program::kChunk) {
    const int64_t count = std::min(Program::kChunk, n - i);
    kernels::from_float(kType, in[0] + i, narrow, count);
    kernels::to_float(kType, narrow, out + i, count);
  }
}

TypedShape infer_fused(const Node& node) {
  return {node.dtype, node.shape};
}

}  // namespace

std::shared_ptr<const Program> finished(Program program) {
  const int count = static_cast<int>(program.code.size());
  const auto is_simple = [&](int i) {
    return i < count && simple_form(*program.code[i].op) != kernels::TypedOp::kNone;
  };
  // Where each result is read last.
  std::vector<int> last_read(program.inputs + count, -1);
  for (int i = 0; i < count; ++i) {
    for (int argument : program.code[i].arguments) last_read[argument] = i;
  }
  program.parts.clear();
  for (int begin = 0, end; begin < count; begin = end) {
    end = begin + 1;
    while (is_simple(begin) && is_simple(end)) ++end;
    program.parts.push_back({begin, end, end - begin > 1});
  }
  program.places.assign(count, 0);
  program.steps.assign(count, {});
  std::vector<int> free;
  int used = 0;
  for (const Program::Part& part : program.parts) {
    for (int i = part.begin; i < part.end; ++i) {
      const auto& instruction = program.code[i];
      const auto& arguments = instruction.arguments;
      const auto is_before = [&](int argument) {
        return i > part.begin && argument == program.inputs + i - 1;
      };
      kernels::ChainStep& step = program.steps[i];
      step.op = simple_form(*instruction.op);
      for (size_t a = 0; a < std::size(step.arguments); ++a) {
        const int argument = arguments[a < arguments.size() ? a : 0];
        step.arguments[a] =
            static_cast<int8_t>(is_before(argument) ? kernels::ChainStep::kBefore : argument);
      }
      for (size_t a = 0; a < arguments.size(); ++a) {
        const int result = arguments[a] - program.inputs;
        const bool is_first = std::find(arguments.begin(), arguments.begin() + a, arguments[a]) ==
                              arguments.begin() + a;
        const bool has_place = result >= 0 && program.places[result] >= 0;
        if (has_place && is_first && last_read[arguments[a]] == i) {
          free.push_back(program.places[result]);
        }
      }
      const bool is_stored = i + 1 == part.end || last_read[program.inputs + i] != i + 1;
      if (is_stored) step.result = static_cast<int8_t>(i);
      if (is_stored && i + 1 < count) {
        if (free.empty()) free.push_back(used++);
        program.places[i] = free.back();
        free.pop_back();
      } else {
        program.places[i] = -1;
      }
    }
  }
  return std::make_shared<const Program>(std::move(program));
}

bool operator==(const Program& a, const Program& b) {
  return a.inputs == b.inputs && a.code == b.code;
}

std::string to_string(const Program& program) {
  std::string out;
  for (const auto& instruction : program.code) {
    out += str(out.empty() ? "" : " ", instruction.op->name, "(");
    for (size_t i = 0; i < instruction.arguments.size(); ++i) {
      out += str(i ? ", r" : "r", instruction.arguments[i]);
    }
    out += ")";
  }
  return out;
}

kernels::TypedOp simple_form(const OpDef& op) {
  return kernels::is_chain_step(op.typed) ? op.typed : kernels::TypedOp::kNone;
}

bool fits_bf16(DType dtype) {
  return dtype == DType::kBF16 || (info(dtype).block_bytes == 1 && !is_quantized(dtype));
}

bool fits_bf16(float x) {
  return (std::bit_cast<uint32_t>(x) & 0xFFFF) == 0;
}

bool chooses(const Program& program) {
  using enum kernels::TypedOp;
  constexpr kernels::TypedOp kChoices[] = {kNegate, kMagnitude, kSign,  kClamp, kMaximum, kMinimum,
                                           kLess,   kEqual,     kWhere, kRelu,  kToBf16};
  return std::ranges::all_of(program.code, [&](const auto& instruction) {
    return std::ranges::find(kChoices, simple_form(*instruction.op)) != std::end(kChoices);
  });
}

const OpDef kToBf16 = {.name = "to_bf16",
                       .kind = OpKind::kElementwise,
                       .block = round_to<DType::kBF16>,
                       .typed = kernels::TypedOp::kToBf16};
const OpDef kToF16 = {
    .name = "to_f16", .kind = OpKind::kElementwise, .block = round_to<DType::kF16>};

const OpDef kFused = {.name = "fused",
                      .kind = OpKind::kElementwise,
                      .infer = infer_fused,
                      .kernel = run_elementwise,
                      .layout = InputLayout::kAny,
                      .gives_bf16 = [](const Node&) { return true; }};

NodePtr make_fused(std::shared_ptr<const Program> program, std::vector<NodePtr> inputs,
                   DType dtype) {
  auto node = std::make_shared<Node>();
  node->op = &kFused;
  node->shape = inputs[0]->shape;
  node->dtype = dtype;
  node->inputs = std::move(inputs);
  node->epilogue = std::move(program);
  return node;
}

bool is_fusable(const Node& node) {
  return node.op->kind == OpKind::kElementwise && node.op != &kFused && node.dtype == DType::kF32;
}

Program program_of(const Node& node) {
  if (node.op == &kFused) return *node.epilogue;
  Program program;
  program.inputs = static_cast<int>(node.inputs.size());
  std::vector<int> arguments;
  for (int i = 0; i < program.inputs; ++i) arguments.push_back(i);
  program.code.push_back({node.op, std::move(arguments)});
  return program;
}

void join_operands(Program& program, std::vector<NodePtr>& inputs) {
  std::vector<NodePtr> joined;
  std::vector<int> map;
  for (const NodePtr& input : inputs) {
    auto found = std::find(joined.begin(), joined.end(), input);
    if (found == joined.end()) found = joined.insert(joined.end(), input);
    map.push_back(static_cast<int>(found - joined.begin()));
  }
  const int gone = program.inputs - static_cast<int>(joined.size());
  for (auto& instruction : program.code) {
    for (int& argument : instruction.arguments) {
      argument = argument < program.inputs ? map[static_cast<size_t>(argument)] : argument - gone;
    }
  }
  program.inputs -= gone;
  inputs = std::move(joined);
}

bool inline_program(const Program& inner, std::span<const NodePtr> inner_inputs, size_t slot,
                    Program& outer, std::vector<NodePtr>& outer_inputs) {
  std::vector<NodePtr> inputs;
  auto operand = [&](const NodePtr& node) {
    auto found = std::find(inputs.begin(), inputs.end(), node);
    if (found == inputs.end()) found = inputs.insert(inputs.end(), node);
    return static_cast<int>(found - inputs.begin());
  };
  std::vector<int> outer_map(outer_inputs.size()), inner_map(inner_inputs.size());
  for (size_t i = 0; i < outer_inputs.size(); ++i) {
    if (i != slot) outer_map[i] = operand(outer_inputs[i]);
  }
  for (size_t i = 0; i < inner_inputs.size(); ++i) inner_map[i] = operand(inner_inputs[i]);
  if (inputs.size() > Program::kMaxInputs) return false;

  Program joined;
  joined.inputs = static_cast<int>(inputs.size());
  // Adds instructions whose operands are `registers` of the joined program, each once; returns the
  // register of the last.
  auto append = [&](const Program& part, std::vector<int> registers, bool ends) {
    for (size_t i = 0; i < part.code.size(); ++i) {
      Program::Instruction instruction = part.code[i];
      for (int& argument : instruction.arguments) argument = registers[argument];
      const bool is_result = ends && i + 1 == part.code.size();
      auto known = is_result ? joined.code.end()
                             : std::find(joined.code.begin(), joined.code.end(), instruction);
      registers.push_back(joined.inputs + static_cast<int>(known - joined.code.begin()));
      if (known == joined.code.end()) joined.code.push_back(std::move(instruction));
    }
    return registers.back();
  };
  outer_map[slot] = append(inner, inner_map, false);
  append(outer, outer_map, true);
  if (joined.code.size() > Program::kMaxInstructions) return false;
  outer = std::move(joined);
  outer_inputs = std::move(inputs);
  return true;
}

void run_elementwise(const KernelCall& call) {
  const Program* program = call.node->epilogue.get();
  const Pieces pieces = pieces_of(call, *program);
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
      Registers registers(*program);
      if (pieces.turns) {
        run_turned(*program, call, pieces, begin, end, registers);
      } else {
        for (int64_t row = begin; row < end; ++row) {
          run_piece(*program, call, pieces, row, 0, pieces.columns, registers);
        }
      }
      if (pieces.streamed) kernels::finish_streams();
    });
    return;
  }
  const int64_t grain =
      std::max(Program::kChunk, kParallelGrain / std::max<int64_t>(1, pieces.rows) /
                                    Program::kChunk * Program::kChunk);
  const int64_t share = call.pool->eighth(pieces.columns, grain);
  call.pool->parallel_pieces(pieces.columns, grain, share, [&](int64_t begin, int64_t end, int) {
    Registers registers(*program);
    for (int64_t row = 0; row < pieces.rows; ++row) {
      run_piece(*program, call, pieces, row, begin, end, registers);
    }
    if (pieces.streamed) kernels::finish_streams();
  });
}

void run_program(const Program& program, std::span<const float* const> operands, int64_t n,
                 float* out) {
  Registers registers(program);
  for (int64_t at = 0; at < n; at += Program::kChunk) {
    for (size_t i = 0; i < operands.size(); ++i) registers.value[i] = operands[i] + at;
    run_code(program, registers, std::min(Program::kChunk, n - at), out + at);
  }
}

void run_epilogue(const Program& program, std::span<const RowOperand> operands, int64_t row,
                  int64_t begin, int64_t end, float* result) {
  Registers registers(program);
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
