#include "lib/nn/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "lib/base/error.h"
#include "lib/graph/views.h"
#include "lib/kernels/convert.h"
#include "lib/nn/latent_attention.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

struct Parameters::Tree {
  NamedArrays arrays;  // of a checkpoint
  std::map<std::string, Tensor> handed_out;
  std::set<std::string> buffers;
  std::vector<std::string> problems;
  std::vector<std::string> misfits;  // tensors of the adapter with other shapes
  std::vector<std::string> frozen;   // patterns
  bool trainable = false;
  std::optional<uint64_t> seed;  // initialise what is asked for
  DType matrix_dtype = DType::kF32;
  std::optional<LoraOptions> lora;
  std::optional<uint64_t> lora_seed;  // trainable additions
  NamedArrays adapter;                // given ones, or what trainable ones begin with
  std::string adapter_place;          // the file of given ones
  std::vector<std::string> trained_modules;
  std::set<std::string> linear_layers, named_targets;
  std::map<std::string, LowRank> additions;  // by their places
  std::set<std::string> in_out;              // places whose weight is [in, out]
  std::set<std::string> left_out;            // what the checkpoint may have, and all below
};

namespace {

constexpr size_t kMostProblems = 10;

std::string first_of(const std::vector<std::string>& problems) {
  std::string list;
  const size_t shown = std::min(kMostProblems, problems.size());
  for (size_t i = 0; i < shown; ++i) list += str(i ? "; " : "", problems[i]);
  if (shown < problems.size()) list += str("; and ", problems.size() - shown, " more");
  return list;
}

constexpr std::string_view kWeight = "weight", kBias = "bias";

// The place of a layer whose weight is `name`: without the last part, with the dot.
std::string place_of_weight(const std::string& name) {
  return name.substr(0, name.size() - kWeight.size());
}

// Fowler-Noll-Vo 1a, 64 bits: the stream of a name's random numbers.
uint64_t hash(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return value;
}

// Of an addition: its factors, and what they were at the start.
constexpr const char *kA = "lora_A.weight", *kB = "lora_B.weight";
constexpr const char *kStartOfA = "lora_A.start", *kStartOfB = "lora_B.start";

// The last part of a place, which ends in a dot: "q_proj".
std::string last_part(std::string_view place) {
  place.remove_suffix(place.empty() ? 0 : 1);
  return std::string(place.substr(place.rfind('.') + 1));
}

// The output and routers of experts, which are no linear layers in transformers: PEFT finds no
// place for their additions.
bool is_left_to_targets(std::string_view place) {
  constexpr std::array<std::string_view, 3> kNoTargets = {"lm_head", "gate", "router"};
  const auto is_inside = [&](const char* part) { return place.find(part) != place.npos; };
  return std::ranges::find(kNoTargets, last_part(place)) != kNoTargets.end() ||
         is_inside(".experts.") || is_inside(".router.");
}

bool ends_in(const std::string& place, const std::string& layer) {
  return str(".", place).ends_with(str(".", layer, "."));
}

// What names the layer of this place among the targets; of no target all that may.
std::vector<std::string> targets_of(const LoraOptions& lora, const std::string& place,
                                    const std::vector<std::string>& names) {
  if (layer_number(place) < lora.first_layer) return {};
  const std::string layer = last_part(place);
  if (lora.targets.empty()) {
    return is_left_to_targets(place) ? std::vector<std::string>() : std::vector{layer};
  }
  std::vector<std::string> found;
  for (const std::string& target : lora.targets) {
    const bool is_name = std::ranges::find(names, target) != names.end();
    if (names.empty() ? ends_in(place, target) : is_name) {
      found.push_back(target);
    }
  }
  return found;
}

}  // namespace

bool is_of_module(std::string_view name, const std::vector<std::string>& modules) {
  const std::string place(name.substr(0, name.rfind('.') + 1));
  return std::ranges::any_of(modules,
                             [&](const std::string& module) { return ends_in(place, module); });
}

bool is_bias(std::string_view name) {
  return str(".", name).ends_with(str(".", kBias)) && name.find(".experts.") == name.npos;
}

LoraOptions::Own LoraOptions::of(const std::string& place) const {
  if (const auto found = own.find(place); found != own.end()) return found->second;
  for (const Group& group : groups) {
    if (matches_pattern(std::string_view(place).substr(0, place.rfind('.')), group.match)) {
      return group.own;
    }
  }
  return {rank, scale};
}

int64_t layer_number(std::string_view place) {
  while (!place.empty()) {
    const std::string_view part = place.substr(0, place.find('.'));
    int64_t number = 0;
    if (parse_number(part, number)) return number;
    place.remove_prefix(std::min(part.size() + 1, place.size()));
  }
  return 0;
}

Array float32_copy(const Array& array) {
  const bool convert = is_float(array.dtype()) || is_quantized(array.dtype());
  Array copy = Array::zeros(convert ? DType::kF32 : array.dtype(), array.shape());
  if (array.elements() == 0) return copy;
  if (convert) {
    kernels::to_float(array.dtype(), array.data(), copy.as_mutable<float>().data(),
                      array.elements());
  } else {
    std::memcpy(copy.mutable_data(), array.data(), array.bytes());
  }
  return copy;
}

Array stored_as(const Array& array, DType dtype) {
  const Shape& shape = array.shape();
  if (shape.rank() < 2 || array.dtype() != DType::kF32) return array;
  if (shape[-1] % info(dtype).block_elements != 0) dtype = DType::kF16;
  if (dtype == DType::kF32) return array;
  Array stored = Array::zeros(dtype, shape);
  kernels::from_float(dtype, array.as<float>().data(), stored.mutable_data(), array.elements());
  return stored;
}

Parameters Parameters::from_checkpoint(const NamedArrays& arrays) {
  auto tree = std::make_shared<Tree>();
  tree->arrays = arrays;
  return Parameters(std::move(tree));
}

Parameters Parameters::random(uint64_t seed, DType dtype) {
  auto tree = std::make_shared<Tree>();
  tree->seed = seed;
  tree->matrix_dtype = dtype;
  return Parameters(std::move(tree));
}

Parameters Parameters::trainable(uint64_t seed) {
  auto tree = std::make_shared<Tree>();
  tree->seed = seed;
  tree->trainable = true;
  return Parameters(std::move(tree));
}

Parameters Parameters::trainable(const NamedArrays& arrays) {
  auto tree = std::make_shared<Tree>();
  tree->arrays = arrays;
  tree->trainable = true;
  return Parameters(std::move(tree));
}

Parameters Parameters::operator/(const std::string& name) const {
  Parameters branch = *this;
  branch.prefix_ += name + ".";
  return branch;
}

Parameters Parameters::with_normal_weights(double deviation) const {
  Parameters place = *this;
  place.normal_deviation_ = deviation;
  return place;
}

Parameters Parameters::without_additions() const {
  Parameters place = *this;
  place.takes_additions_ = false;
  return place;
}

Parameters Parameters::with_lora(const LoraOptions& options, uint64_t seed,
                                 const NamedArrays& start, const std::string& place) const {
  tree_->lora = options;
  tree_->lora_seed = seed;
  tree_->adapter = start;
  tree_->adapter_place = place;
  return *this;
}

Parameters Parameters::with_lora(const LoraOptions& options, const NamedArrays& adapter,
                                 const std::string& place) const {
  tree_->lora = options;
  tree_->adapter = adapter;
  tree_->adapter_place = place;
  return *this;
}

Parameters Parameters::with_trained(const std::vector<std::string>& modules) const {
  tree_->trained_modules = modules;
  return *this;
}

NamedArrays Parameters::merged() const {
  NamedArrays all;
  for (const auto& [name, tensor] : tree_->handed_out) {
    if (name.find(".lora_") == std::string::npos) all[name] = merged(name);
  }
  // An addition to what is two tensors, as GGUF has it.
  std::vector<std::string> parted;
  for (const auto& [name, array] : all) {
    if (has_addition(joined_rows_name(name))) parted.push_back(name);
  }
  for (const std::string& keys : parted) {
    const std::string whole = joined_rows_name(keys), values = value_rows_name(keys);
    const Tensor rows = graph::constant(joined_rows(all.at(keys), all.at(values)));
    all[whole] = worked_in(rows, tree_->additions.at(place_of_weight(whole))).eval();
    all.erase(keys);
    all.erase(values);
  }
  return all;
}

bool Parameters::has_addition(const std::string& name) const {
  return name.ends_with(kWeight) && tree_->additions.contains(place_of_weight(name));
}

Array Parameters::merged(const std::string& name) const {
  const Array& value = tree_->handed_out.at(name).node()->value;
  if (!has_addition(name)) return is_quantized(value.dtype()) ? float32_copy(value) : value;
  const std::string place = place_of_weight(name);
  const auto order = tree_->in_out.contains(place) ? WeightOrder::kInOut : WeightOrder::kOutIn;
  return worked_in(graph::constant(float32_copy(value)), tree_->additions.at(place), order).eval();
}

const std::set<std::string>& Parameters::linear_layers() const {
  return tree_->linear_layers;
}

const std::set<std::string>& Parameters::named_targets() const {
  return tree_->named_targets;
}

bool Parameters::is_chosen(const std::vector<std::string>& names) const {
  const LoraOptions& lora = *tree_->lora;
  const std::vector<std::string> targets = targets_of(lora, prefix_, names);
  tree_->named_targets.insert(targets.begin(), targets.end());
  if (targets.empty()) return false;
  const auto left_out = std::ranges::find_if(
      lora.exclude, [&](const std::string& layer) { return ends_in(prefix_, layer); });
  if (left_out == lora.exclude.end()) return true;
  tree_->named_targets.insert(*left_out);
  return false;
}

void Parameters::note_misfit(const std::string& full, const Shape& found,
                             const Shape& expected) const {
  tree_->misfits.push_back(
      str(quoted(full), " has shape ", to_string(found), ", expected ", to_string(expected)));
}

Tensor Parameters::trained_part(const std::string& name, Array start) const {
  const std::string full = prefix_ + name;
  if (const auto given = tree_->adapter.find(full); given != tree_->adapter.end()) {
    const Shape& shape = given->second.shape();
    if (shape == start.shape()) {
      start = float32_copy(given->second);
    } else {
      note_misfit(full, shape, start.shape());
    }
  }
  Tensor leaf = graph::state(std::move(start), full);
  leaf.node()->requires_grad = true;
  return tree_->handed_out[full] = leaf;
}

Tensor Parameters::given_part(const std::string& name, const Shape& shape) const {
  const std::string full = prefix_ + name;
  const auto found = tree_->adapter.find(full);
  if (found == tree_->adapter.end()) {
    tree_->problems.push_back(
        str(quoted(full), " is missing in the adapter ", tree_->adapter_place));
    return graph::input(DType::kF32, shape, full);
  }
  if (found->second.shape() != shape) {
    note_misfit(full, found->second.shape(), shape);
    return graph::input(DType::kF32, shape, full);
  }
  return tree_->handed_out[full] = graph::constant(float32_copy(found->second), full);
}

LowRank Parameters::new_addition(const Tensor& weight, WeightOrder order) const {
  const LoraOptions& lora = *tree_->lora;
  const auto [rank, scale] = lora.of(prefix_);
  // The numbers of a stand-in are not known; check() fails for it.
  const bool is_known = graph::is_constant(*weight.node());
  const LowRankInit init = is_known ? lora.init : LowRankInit::kUniform;
  Philox random(*tree_->lora_seed, hash(prefix_ + kA));
  const LowRankStart start =
      low_rank_start(init, weight, order, rank, scale, lora.init_iterations, random);
  LowRank addition{trained_part(kA, start.a), trained_part(kB, start.b), scale, lora.dropout};
  if (is_part_of_weight(init)) {
    // A state, which a checkpoint restores: computed again it might differ by a bit.
    const auto frozen = [&](const char* name, const Array& of) {
      return tree_->handed_out[prefix_ + name] = graph::state(float32_copy(of), prefix_ + name);
    };
    const Tensor rows[] = {addition.a, frozen(kStartOfA, start.a)};
    const Tensor columns[] = {addition.b, ops::neg(frozen(kStartOfB, start.b))};
    addition.a = ops::concat(rows, 0);
    addition.b = ops::concat(columns, 1);
  }
  if (!lora.dora || !is_known) return addition;
  // What is 0 at the start leaves the lengths as they are, not even rounded.
  const bool changes = init == LowRankInit::kRandom;
  const Tensor whole =
      changes ? graph::constant(worked_in(weight, addition, order).eval()) : weight;
  const Tensor m = trained_part("lora_magnitude_vector", row_lengths(whole, order));
  addition.magnitudes = magnitudes_of(m, weight, order);
  return addition;
}

std::optional<LowRank> Parameters::low_rank(const Tensor& weight, WeightOrder order,
                                            const std::vector<std::string>& names) const {
  if (!takes_additions_ && (!tree_->lora || tree_->lora_seed)) return std::nullopt;
  if (names.empty()) tree_->linear_layers.insert(last_part(prefix_));
  tree_->linear_layers.insert(names.begin(), names.end());
  if (order == WeightOrder::kInOut) tree_->in_out.insert(prefix_);
  if (!tree_->lora) return std::nullopt;
  const NamedArrays& adapter = tree_->adapter;
  const bool is_new = tree_->lora_seed.has_value();
  const bool has =
      is_new ? is_chosen(names) : adapter.contains(prefix_ + kA) || adapter.contains(prefix_ + kB);
  if (!has) return std::nullopt;
  const auto given = [&]() -> LowRank {
    const auto [rank, scale] = tree_->lora->of(prefix_);
    const int in_axis = order == WeightOrder::kOutIn ? 1 : 0;
    return {given_part(kA, {rank, weight.dim(in_axis)}),
            given_part(kB, {weight.dim(1 - in_axis), rank}), scale, tree_->lora->dropout};
  };
  const LowRank addition = is_new ? new_addition(weight, order) : given();
  tree_->additions.insert_or_assign(prefix_, addition);
  return addition;
}

// The value of a parameter that was not asked for before; empty if it is missing or misshapen.
Array Parameters::find(const std::string& full, const Shape& shape, const Init& init,
                       DType dtype) const {
  if (tree_->seed) {
    Philox random(*tree_->seed, hash(full));
    Init start = init;
    if (normal_deviation_ && init.is_around_zero()) {
      start = shape.rank() > 1 ? Init::normal(*normal_deviation_) : Init::zeros();
      start.zero_row = init.zero_row;
    }
    return initialized(start, dtype, shape, random);
  }
  auto found = tree_->arrays.find(full);
  if (found == tree_->arrays.end()) {
    tree_->problems.push_back(str(quoted(full), " is missing"));
  } else if (!(found->second.shape() == shape)) {
    tree_->problems.push_back(str(quoted(full), " has shape ", to_string(found->second.shape()),
                                  ", expected ", to_string(shape)));
  } else {
    const Array& stored = found->second;
    // Products take no float64 weights.
    return is_trained(full) || stored.dtype() == DType::kF64 ? float32_copy(stored) : stored;
  }
  return {};
}

bool Parameters::is_trained(const std::string& full) const {
  return tree_->trainable || is_of_module(full, tree_->trained_modules) || is_trained_bias(full);
}

bool Parameters::is_trained_bias(const std::string& full) const {
  using Biases = LoraOptions::Biases;
  const bool none = !tree_->lora_seed || tree_->lora->biases == Biases::kNone;
  if (none || !is_bias(full)) return false;
  const std::string place = full.substr(0, full.size() - kBias.size());
  return tree_->lora->biases == Biases::kAll || tree_->additions.contains(place);
}

// Of a checkpoint one of the two is misshapen anyway.
void Parameters::note_second_shape(const std::string& full, const Shape& first,
                                   const Shape& second) const {
  if (!tree_->seed) return;
  tree_->problems.push_back(
      str(quoted(full), " is asked for as ", to_string(first), " and as ", to_string(second)));
}

Tensor Parameters::get(const std::string& name, const Shape& shape, const Init& init) const {
  const std::string full = prefix_ + name;
  if (auto known = tree_->handed_out.find(full); known != tree_->handed_out.end()) {
    if (known->second.shape() == shape) return known->second;
    note_second_shape(full, known->second.shape(), shape);
  }
  const DType dtype = shape.rank() > 1 ? tree_->matrix_dtype : DType::kF32;
  Array array = find(full, shape, init, dtype);
  Tensor tensor;
  if (!array.empty() && !is_float(array.dtype()) && !is_quantized(array.dtype())) {
    tree_->problems.push_back(str(quoted(full), " has type ", lumen::name(array.dtype()),
                                  ", expected a float or quantised type"));
  } else if (!array.empty() && !is_trained(full)) {
    tensor = graph::constant(std::move(array), full);
  } else if (!array.empty()) {
    tensor = graph::state(std::move(array), full);
    tensor.node()->requires_grad = true;
    for (const std::string& pattern : tree_->frozen) {
      if (matches_pattern(full, pattern)) tensor.node()->requires_grad = false;
    }
  }
  // A stand-in lets construction go on, so that check() can name everything that is wrong.
  if (!tensor.defined()) tensor = graph::input(DType::kF32, shape, full);
  tree_->handed_out[full] = tensor;
  return tensor;
}

Tensor Parameters::get_f32(const std::string& name, const Shape& shape, const Init& init) const {
  const Tensor stored = get(name, shape, init);
  if (stored.dtype() == DType::kF32) return stored;
  return graph::constant(graph::contiguous(stored, DType::kF32).eval(), prefix_ + name);
}

Tensor Parameters::buffer(const std::string& name, const Shape& shape, const Init& init,
                          DType dtype) const {
  const std::string full = prefix_ + name;
  tree_->buffers.insert(full);
  if (auto known = tree_->handed_out.find(full); known != tree_->handed_out.end()) {
    if (known->second.shape() == shape) return known->second;
    note_second_shape(full, known->second.shape(), shape);
  }
  Array array = find(full, shape, init, dtype);
  if (!array.empty() && dtype == DType::kF32) array = float32_copy(array);
  if (!array.empty() && array.dtype() != dtype) {
    tree_->problems.push_back(str(quoted(full), " has type ", lumen::name(array.dtype()),
                                  ", expected ", lumen::name(dtype)));
    array = {};
  }
  const Tensor tensor = array.empty()      ? graph::input(dtype, shape, full)
                        : tree_->trainable ? graph::state(std::move(array), full)
                                           : graph::constant(std::move(array), full);
  tree_->handed_out[full] = tensor;
  return tensor;
}

bool Parameters::has(const std::string& name) const {
  return tree_->arrays.count(prefix_ + name) > 0;
}

void Parameters::leave_out(const std::string& name) const {
  tree_->left_out.insert(str(prefix_, name));
}

std::vector<std::string> Parameters::check() const {
  if (!tree_->problems.empty()) {
    fail(ErrorKind::kMalformed, "the tensors do not fit the config: ", first_of(tree_->problems));
  }
  if (!tree_->misfits.empty()) {
    fail(ErrorKind::kMismatch, "the adapter ", tree_->adapter_place,
         " does not fit the model: ", first_of(tree_->misfits));
  }
  std::vector<std::string> unused;
  const auto is_left_out = [&](std::string_view name) {
    return std::any_of(tree_->left_out.begin(), tree_->left_out.end(),
                       [&](const std::string& place) {
                         if (!name.starts_with(place)) return false;
                         return name.size() == place.size() || name[place.size()] == '.';
                       });
  };
  for (const auto& [name, array] : tree_->arrays) {
    if (tree_->handed_out.count(name) == 0 && !is_left_out(name)) unused.push_back(name);
  }
  for (const auto& entry : tree_->adapter) {
    if (tree_->handed_out.count(entry.first) == 0) unused.push_back(entry.first);
  }
  return unused;
}

std::string Parameters::adapter_of(const std::string& name) const {
  return tree_->adapter.contains(name) ? tree_->adapter_place : "";
}

const std::map<std::string, Tensor>& Parameters::named() const {
  return tree_->handed_out;
}

std::vector<std::pair<std::string, Tensor>> Parameters::named_parameters() const {
  std::vector<std::pair<std::string, Tensor>> parameters;
  for (const auto& [name, tensor] : tree_->handed_out) {
    if (tree_->buffers.count(name) == 0) parameters.emplace_back(name, tensor);
  }
  return parameters;
}

size_t Parameters::freeze(const std::string& pattern) const {
  tree_->frozen.push_back(pattern);
  size_t matched = 0;
  for (const auto& [name, tensor] : named_parameters()) {
    if (!matches_pattern(name, pattern)) continue;
    tensor.node()->requires_grad = false;
    ++matched;
  }
  return matched;
}

NamedArrays Parameters::state_dict() const {
  NamedArrays values;
  for (const auto& [name, tensor] : tree_->handed_out) values[name] = tensor.node()->value;
  return values;
}

void Parameters::load_state_dict(const NamedArrays& values) const {
  LUMEN_CHECK(tree_->trainable);
  NamedArrays own = state_dict();
  check_same_names(own, values, "the model");
  std::string wrong;
  for (const auto& [name, array] : own) {
    const DType given = values.at(name).dtype();
    const bool widened = array.dtype() == DType::kF32 && (is_float(given) || is_quantized(given));
    if (given == array.dtype() || widened) continue;
    wrong += str(wrong.empty() ? "" : ", ", quoted(name), " ", lumen::name(given), " instead of ",
                 lumen::name(array.dtype()));
  }
  if (!wrong.empty()) {
    fail(ErrorKind::kMismatch, "the tensors do not fit the model: of another type: ", wrong);
  }
  for (auto& [name, array] : own) {
    const Array& given = values.at(name);
    if (array.elements() == 0) continue;
    if (given.dtype() == array.dtype()) {
      std::memmove(array.mutable_data(), given.data(), array.bytes());
    } else {
      kernels::to_float(given.dtype(), given.data(), array.as_mutable<float>().data(),
                        array.elements());
    }
  }
}

}  // namespace lumen::nn
