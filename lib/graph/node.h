// The graph: nodes, and the definition of an operation.
//
// A program records nodes as it runs (tensor.h); passes rewrite them (passes.h); a plan executes
// them (plan.h). Everything the system knows of an operation stands in its OpDef.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lib/base/pool.h"
#include "lib/kernels/elementwise.h"
#include "lib/kernels/elementwise_f64.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/typed.h"
#include "lib/tensor/array.h"

namespace lumen::graph {

struct Node;
struct OpDef;
struct Program;
struct GradientRecord;  // lib/autograd
class Tensor;
using NodePtr = std::shared_ptr<Node>;

// The constants of one use of an operation, by name: axes, epsilons, sizes. Few, ordered.
class Attrs {
 public:
  using Value = std::variant<int64_t, double, std::vector<int64_t>>;

  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const char*, Value>> values) : values_(values) {}

  // The attribute's value; it must exist with that type.
  int64_t integer(std::string_view name) const { return std::get<int64_t>(find(name)); }
  double real(std::string_view name) const { return std::get<double>(find(name)); }
  const std::vector<int64_t>& integers(std::string_view name) const {
    return std::get<std::vector<int64_t>>(find(name));
  }

  bool has(std::string_view name) const {
    for (const auto& [key, value] : values_) {
      if (name == key) return true;
    }
    return false;
  }

  // `name`, which must outlive this, must not exist yet.
  void add(const char* name, Value value) { values_.emplace_back(name, std::move(value)); }

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  const Value& find(std::string_view name) const;
  std::vector<std::pair<const char*, Value>> values_;
};

// "axis=1 keep=[0, 2]".
std::string to_string(const Attrs& attrs);

// One value of the graph: an operation applied to other values. Immutable once built, except that
// evaluation stores the result in `value`.
struct Node {
  const OpDef* op = nullptr;
  std::vector<NodePtr> inputs;
  Attrs attrs;
  Shape shape;
  DType dtype = DType::kF32;
  Array value;       // the data of a constant or a state; of any other node once evaluated
  std::string name;  // of a parameter, an input or a state: for messages and drawings
  // Element-wise work done on each finished piece of this node's result (epilogue fusion). The
  // program's register 0 is the result, the others are the last inputs of the node; of what
  // OpDef::gate makes, registers 0 and 1 are the halves.
  std::shared_ptr<const Program> epilogue;

  bool requires_grad = false;                // gradients flow through it; set when it is recorded
  std::shared_ptr<GradientRecord> gradient;  // autograd's own: accumulated gradient, hooks, rules

  ~Node();  // iterative: a chain of 100,000 nodes must not overflow the stack
};

// Where a value lies while a plan runs. Strides in elements; 0 on broadcast axes.
struct Operand {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Layout layout = Layout::kRows;  // in panels `strides` mean nothing
  Shape shape;
  Strides strides{};

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// What a kernel is given: one node of a plan with its operands in place.
struct KernelCall {
  const Node* node = nullptr;
  std::vector<Operand> inputs;
  Operand output;
  std::byte* workspace = nullptr;  // OpDef::workspace bytes, 64-byte aligned
  ThreadPool* pool = nullptr;
  const kernels::Epilogue* epilogue = nullptr;  // only for ops with takes_epilogue
};

enum class OpKind { kLeaf, kView, kElementwise, kReduction, kContraction, kGather, kOpaque };

// What layouts of its inputs a kernel can read; anything else is made contiguous first.
enum class InputLayout {
  kContiguous,
  kRows,   // the last axis contiguous, all others at one common row stride
  kInner,  // the last axis contiguous
  kAny,
};

struct TypedShape {
  DType dtype;
  Shape shape;
};

struct Cost {
  double flops = 0, bytes = 0;
};

// What a gradient rule is given: a node with its inputs and result as tensors, and the gradient of
// the result.
struct GradCall;

// What mixed precision does to the float32 inputs of an operation (AutocastScope).
enum class Autocast {
  kPreserve,  // nothing
  kLow,       // products: they are rounded to the low type, to bfloat16 by the operation: its attr
              // "bf16", which is there and 1 only then
  kInside,    // what multiplies among other things: with bfloat16 the operation rounds the operands
              // of its products, the same attr says so; with float16 nothing
  kFull,      // sums, norms, losses: they stay float32 whatever is added for the others
};

// What a kernel does with a float32 input if that is stored in bfloat16 (passes/store_bf16.cc).
enum class Bf16Input {
  kNo,       // it cannot read it
  kRead,     // it computes with it in float32
  kSummed,   // it only adds it up
  kRounded,  // it would have rounded it itself: the same result
  kJoined,   // it moves it: what counts is what reads its own result
};

// A set of inputs worth testing an operation on; see ops/op_test.cc.
struct OpCase {
  std::string label;
  std::vector<TypedShape> inputs;
  std::function<Tensor(std::span<const Tensor>)> build;
  double low = -2, high = 2;  // range of random float inputs
  double tolerance = 1e-5;    // |kernel − meaning| ≤ tolerance · (1 + |meaning|)
};

// An operation, declared once. Plain aggregate; all instances are constants with static lifetime.
struct OpDef {
  std::string_view name;
  OpKind kind = OpKind::kOpaque;

  // Shape and dtype of the result from inputs and attrs. Throws Error(kMalformed) naming the
  // operation and the shapes when they do not fit.
  TypedShape (*infer)(const Node& node) = nullptr;

  // kView only: the result's strides and element offset from the input's, false if this layout
  // cannot be viewed so (a reshape across strides).
  bool (*view)(const Node& node, const Shape& in_shape, const Strides& in, Strides& out,
               int64_t& offset) = nullptr;

  // kElementwise only: inputs have the shape of the result. `block` computes in float32,
  // `block_f64` in float64, and steps whose result is one of these are fused. Results of other
  // types are computed by `kernel`: in double if an input is a float, with `block_f64` or, one
  // element at a time, with `real` (absent: `scalar`); else in int64, one element at a time, with
  // `integer`. What has none of a kind does not exist for those types. `typed` names what is the
  // same in vectors (typed.h), of some types or in chains of float steps; what chains have is an
  // instruction or a few, which a pass may repeat rather than store.
  kernels::BlockFn block = nullptr;
  kernels::BlockF64Fn block_f64 = nullptr;
  double (*real)(const double* in) = nullptr;
  int64_t (*integer)(const int64_t* in) = nullptr;
  kernels::TypedOp typed = kernels::TypedOp::kNone;

  // Computes the result. Kernels only assert. Absent: the meaning is run instead.
  void (*kernel)(const KernelCall& call) = nullptr;
  size_t (*workspace)(const Node& node, int threads) = nullptr;
  InputLayout layout = InputLayout::kContiguous;
  // Whether input `i` must be contiguous whatever `layout` says; absent: only what takes_panels is.
  bool (*contiguous_input)(const Node& node, size_t i) = nullptr;
  bool takes_epilogue = false;
  // Whether input `i` may be a constant in panels; absent: none may. make_node checks it.
  bool (*takes_panels)(const Node& node, size_t i) = nullptr;
  // Of such inputs, which part of their bytes one row of the first input reads, in the mean over
  // all of them; absent: all.
  double (*part_read)(const Node& node, size_t i) = nullptr;
  int overwrites = -1;  // index of the state input whose memory the result takes over

  // The same result from simpler operations: oracle, fallback and default gradient.
  Tensor (*meaning)(const Node& node, std::span<const Tensor> inputs) = nullptr;

  // The gradients of the inputs, in tensor operations, so that they can be differentiated again:
  // one per input and of its shape, undefined where an input has none (indices). Absent: `meaning`
  // is differentiated. Step functions use `no_gradient`.
  std::vector<Tensor> (*grad)(const GradCall& call) = nullptr;
  Autocast autocast = Autocast::kPreserve;

  // Of input i, and whether the kernel can store its float32 result in bfloat16, as infer then says
  // (stored_type, mixed_precision.h); absent: it cannot. Epilogues and element-wise work read both.
  Bf16Input (*bf16_input)(const Node& node, size_t i) = nullptr;
  bool (*gives_bf16)(const Node& node) = nullptr;

  // Whether attr kReluAttr, 1, makes the kernel give relu of its first result, which has the shape
  // of the first input and lies at the front of a flat one (unpack, views.h) or is all there is;
  // passes/fuse_relu.cc.
  bool takes_relu = false;
  // Of the gradient of such an operation: the index of the input that is the gradient of the first
  // result, and the same value from that of its relu, `dy`; null if `forward` is not the operation
  // with relu whose gradient this is.
  int relu_gradient = -1;
  NodePtr (*through_relu)(const Node& node, const Node& forward, const NodePtr& dy) = nullptr;

  // Joins several uses that share their first input into one whose result is theirs side by side
  // along the last axis (q, k and v in one product); null if this is not such an operation.
  NodePtr (*merge)(std::span<const NodePtr> uses) = nullptr;

  // Of a result that is two halves side by side along the last axis: one operation whose result is
  // what `program` makes of both, element by element (operands 0 and 1); null if there is none.
  NodePtr (*gate)(const Node& node, std::shared_ptr<const Program> program) = nullptr;

  // The same value from fewer operations, seen from what the inputs are made of; null if there is
  // no such way. Sums may be rounded in another order.
  NodePtr (*reassociate)(const NodePtr& node) = nullptr;

  // The dozen primitives, which the reference backend runs in double: exactly one is set.
  double (*scalar)(const double* in) = nullptr;               // element-wise
  double (*combine)(double accumulator, double x) = nullptr;  // reduction over attr "axis"
  double identity = 0;                                        // of `combine`
  bool copies = false;                                        // Contiguous

  // Draws numbers from a key: no meaning in primitives, so every backend runs `kernel`.
  bool random = false;

  Cost (*cost)(const Node& node) = nullptr;
  std::vector<OpCase> (*cases)() = nullptr;

  bool is_primitive() const { return scalar || combine || copies; }
};

inline constexpr const char* kReluAttr = "relu";

// Throws Error(kMalformed): `argument` of `operation` is a tensor that was never given a value.
[[noreturn]] void refuse_undefined(std::string_view operation, std::string_view argument);

// Builds and checks a node: runs op.infer and check_extents on its result. Throws
// Error(kUnsupported) if an input is in panels (repacked weights) and the operation does not take
// them, and Error(kMalformed) if one is null.
NodePtr make_node(const OpDef& op, std::vector<NodePtr> inputs, Attrs attrs = {});

}  // namespace lumen::graph
