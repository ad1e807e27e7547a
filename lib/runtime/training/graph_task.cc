// The training task of a recipe: its data, network and optimizer, as compiled plans.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "lib/base/error.h"
#include "lib/graph/plan_observer.h"
#include "lib/graph/tensor.h"
#include "lib/io/mapped_file.h"
#include "lib/io/sha256.h"
#include "lib/io/torch_file.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/optimizer_step.h"
#include "lib/nn/multipliers.h"
#include "lib/nn/rope.h"
#include "lib/optim/clip.h"
#include "lib/optim/grad_scaler.h"
#include "lib/optim/optimizer.h"
#include "lib/optim/outlier_norms.h"
#include "lib/runtime/adapters/stored_layout.h"
#include "lib/runtime/classify.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/generation/session.h"
#include "lib/runtime/generation/weights.h"
#include "lib/runtime/tool/available_memory.h"
#include "lib/runtime/training/describe_sample.h"
#include "lib/runtime/training/export_model.h"
#include "lib/runtime/training/least_loss.h"
#include "lib/runtime/training/lora_training.h"
#include "lib/runtime/training/recipe_fit.h"
#include "lib/runtime/training/target_bytes.h"
#include "lib/runtime/training/train_task.h"
#include "lib/runtime/training/training_data.h"
#include "lib/runtime/training/training_samples.h"
#include "lib/runtime/training/training_step.h"
#include "lib/tensor/allocator.h"

namespace lumen::runtime {
namespace {

using graph::Tensor;

constexpr int64_t kMostMicroSteps = int64_t{1} << 53;  // what every reader of JSON can hold

// Plans are kept by the shapes of a batch.
std::string shape_key(const data::Batch& batch) {
  std::string key;
  for (const auto& [name, array] : batch.fields) key += str(name, to_string(array.shape()), " ");
  return key;
}

// The model that `recipe` goes on with, if it names one.
std::unique_ptr<io::ModelFiles> open_base(const Recipe& recipe) {
  if (!recipe.model.path) return nullptr;
  const std::string path = find_base_model(recipe);
  if (io::is_regular_file(path + "/adapter_config.json") &&
      !io::is_regular_file(path + "/config.json")) {
    fail_at_key(recipe, "model.path",
                str(io::place_of(path), " is a LoRA adapter; name its base model ",
                    quoted(io::base_of_adapter(path)), " here, and in lora.adapter the adapter, ",
                    "to go on from it"));
  }
  if (is_classifier_directory(path)) {
    fail_at_key(recipe, "model.path",
                str(io::place_of(path), " is a classifier, and a path is for language models; ",
                    "give model.type and model.weights = ", quoted(path + "/model.safetensors")));
  }
  return std::make_unique<io::ModelFiles>(open_known_model(path));
}

bool is_finite(const Array& float32) {
  return std::ranges::all_of(float32.as<float>(), [](float x) { return std::isfinite(x); });
}

class GraphTask : public TrainTask {
 public:
  GraphTask(const Recipe& recipe, const TaskOptions& options);

  TaskSummary summary() const override;
  TaskSummary data_summary() const override;
  StepResult step(double lr) override;
  double least_loss() const override { return runtime::least_loss(batch_); }
  bool has_finite_weights() const override;
  NonfinitePlace find_nonfinite() const override;
  double loss_after_step() override;
  uint64_t evaluation_bytes() const override;
  std::map<std::string, double> evaluate(const StopCheck& stops) override;
  TaskState state() const override;
  void restore(const TaskState& state) override;
  void export_model(const std::string& directory) override;
  std::vector<std::string> sample(const std::vector<std::string>& prompts, int64_t max_tokens,
                                  const StopCheck& stops) override;
  std::vector<std::string> preview(int64_t count) override;

 private:
  void build_network();
  void choose_trained();
  void require_memory() const;
  void check_position_scaling();
  // The next micro-batch of a step; false at the end of an epoch, unless it is the first.
  bool next_batch(data::Batch& batch, bool first);
  TrainingStep& plan_for(const data::Batch& batch) const;
  EvaluationStep& evaluation_of(const data::Batch& batch);
  // Σ losses and gradients of one global batch; the gradients of their sum.
  struct Sums {
    double loss = 0, tokens = 0, samples = 0;
    std::span<const Array> gradients;
  };
  Sums accumulate();
  double grad_norm(std::span<const Array> gradients);
  // What the sum of losses is multiplied by before it is differentiated, with float16.
  double loss_scale() const;
  void add_gradients(const std::vector<Array>& gradients, bool first);
  NamedArrays weights() const;
  ExportedModel exported() const;
  // Positions of a text that the model writes.
  int64_t sample_context() const;
  std::string base_sha256() const;

  Recipe recipe_;
  bool overfit_;
  mutable ThreadPool pool_;
  std::unique_ptr<io::ModelFiles> base_;
  TrainingData data_;
  std::optional<TargetBytes> target_bytes_;  // of text, once it is evaluated
  std::vector<std::string> notices_;
  io::Json config_;
  nn::LoraOptions lora_;  // of [lora], as they are in the adapter
  nn::Parameters parameters_ = nn::Parameters::trainable(uint64_t{0});
  std::unique_ptr<Network> network_;
  std::vector<TrainedParameter> trained_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_;
  optim::OutlierNorms norms_;
  std::unique_ptr<data::BatchStream> train_stream_;
  mutable std::map<std::string, std::unique_ptr<TrainingStep>> plans_;
  std::map<std::string, std::unique_ptr<EvaluationStep>> evaluations_;
  std::vector<Array> accumulated_;    // gradients of several micro-batches
  std::span<const Array> gradients_;  // of the last step
  std::vector<int64_t> samples_;      // that it read
  data::Batch batch_;
  int64_t micro_steps_ = 0;  // micro-batches so far: modulo 2^32 it drives dropout
};

GraphTask::GraphTask(const Recipe& recipe, const TaskOptions& options)
    : recipe_(recipe),
      overfit_(options.overfit_batch),
      pool_(static_cast<int>(options.threads.value_or(default_thread_count()))),
      base_(open_base(recipe)),
      data_(open_training_data(fit_rows(recipe_, base_.get()), base_.get())) {
  if (overfit_) {
    data_.options.augment = false;
    recipe_.model.dropout = recipe_.lora.dropout = recipe_.train.label_smoothing = 0;
    recipe_.train.router_aux_loss_coef = 0;
  }
  const graph::PoolScope scope(pool_);
  check_batch_size(recipe_, data_.data.train->samples());
  // On all cores it would take one from the pool, which then waits for it.
  if (pool_.threads() >= default_thread_count()) data_.options.prefetch = false;
  train_stream_ = data::make_stream(data_.data, data::Split::kTrain, data_.options, &pool_);
  check_label(recipe_, !data_.data.info.classes.empty());
  check_evaluation(recipe_, data_.data.eval != nullptr);
  build_network();
  choose_trained();
  std::vector<optim::NamedParameter> named;
  for (const TrainedParameter& p : trained_) named.push_back({p.name, p.tensor.node()->value});
  const optim::OptimizerConfig config = optimizer_config(recipe_, named);
  optimizer_ = optim::make_optimizer(config, std::move(named));
  notices_ = data_.notices;
  if (network_->language_model() != nullptr && data_.tokenizer != nullptr) {
    const auto obstacles = obstacles_of(data_, recipe_.log.samples.prompts, sample_context());
    notices_.insert(notices_.end(), obstacles.begin(), obstacles.end());
  }
  check_position_scaling();
}

// Before anything is made: to fill all memory takes a minute, and then the kernel kills something.
void GraphTask::require_memory() const {
  const uint64_t available = available_memory();
  const auto most = static_cast<int64_t>(std::min<uint64_t>(available, 1ull << 62));
  limit_memory(memory_stats().live_bytes + most);
  if (recipe_.lora.rank) return;  // its weights stay in their file
  // Without arrays all parameters are stand-ins, which have nothing but their shapes.
  const nn::Parameters shapes = nn::Parameters::from_checkpoint({});
  try {
    make_network(config_, shapes, {});
  } catch (const Error& error) {
    if (base_ != nullptr || error.kind() != ErrorKind::kMalformed) throw;
    fail_at_key(recipe_, "model.type", error.what());  // the data do not fit it
  }
  uint64_t elements = 0;
  for (const auto& [name, tensor] : shapes.named()) {
    elements += static_cast<uint64_t>(tensor.shape().elements());
  }
  const uint64_t bytes = 2 * sizeof(float) * elements;
  if (bytes <= available) return;
  fail(ErrorKind::kResource, "the ", elements, " parameters of the model and their gradients take ",
       human_bytes(bytes), ", available are ", human_bytes(available),
       base_ ? "; train additions ([lora]) to it, or a smaller model" : "; make [model] smaller");
}

void GraphTask::build_network() {
  const auto seed = static_cast<uint64_t>(recipe_.seed);
  std::string path;
  if (base_ != nullptr) path = base_->path;
  if (recipe_.model.weights) path = find_file(recipe_, "model.weights", *recipe_.model.weights);
  config_ = base_ != nullptr ? base_->config : network_config(recipe_.model, data_.shape());
  require_memory();
  if (recipe_.lora.rank) {
    parameters_ = frozen_with_additions(recipe_, config_, base_->tensors, lora_);
    lora_ = with_starts(lora_);
  } else if (base_ != nullptr) {
    parameters_ = recipe_.model.init == "random" ? nn::Parameters::trainable(seed)
                                                 : nn::Parameters::trainable(base_->tensors);
  } else {
    parameters_ = recipe_.model.weights ? nn::Parameters::trainable(io::read_tensors(path))
                                        : nn::Parameters::trainable(seed);
  }
  network_ = make_network(config_, parameters_,
                          {.label_smoothing = recipe_.train.label_smoothing,
                           .recompute = recipe_.train.activation_checkpointing,
                           .router_aux_loss_coef = recipe_.train.router_aux_loss_coef});
  const models::CausalLm* const lm = network_->language_model();
  check_router_loss(recipe_, lm != nullptr ? lm->used_experts() : 0);
  with_context(io::place_of(path), [&] {
    if (recipe_.lora.adapter) check_adapter_taken(recipe_, parameters_);
    models::check_tensors(parameters_);
  });
  if (lm != nullptr && data_.tokenizer) {
    PromptFormat(data_.tokenizer, std::nullopt, {})
        .check_vocabulary(lm->vocab_size(), false, recipe_.tokenizer.path.value_or(path));
  }
}

void GraphTask::choose_trained() {
  if (recipe_.lora.rank) {
    check_lora_targets(recipe_, io::get_string(config_, "model_type"), parameters_, weights());
    check_trained_modules(recipe_, parameters_);
    check_trained_biases(recipe_, parameters_);
    NamedArrays additions = weights();
    join_starts(additions);
    if (!recipe_.exported.merge_lora) check_form_in_peft(recipe_, lora_, additions, exported());
  }
  for (const auto& [name, tensor] : parameters_.named()) {
    if (tensor.requires_grad()) trained_.push_back({name, tensor});
  }
  if (trained_.empty()) fail(ErrorKind::kUsage, "nothing is trained: every parameter is frozen");
}

TaskSummary GraphTask::data_summary() const {
  TaskSummary summary;
  const data::DatasetInfo& info = data_.data.info;
  for (const data::SourceFile& file : info.files) {
    summary.data.push_back(
        {file.path, file.bytes, file.sha256, file.samples, file.skipped, file.too_long, file.cut});
  }
  summary.too_long_samples = info.too_long;
  summary.cut_samples = info.cut;
  summary.notices = notices_;
  return summary;
}

TaskSummary GraphTask::summary() const {
  TaskSummary summary = data_summary();
  for (const auto& [name, tensor] : parameters_.named()) {
    const int64_t count = tensor.shape().elements();
    summary.parameters += count;
    if (tensor.requires_grad()) summary.trained_parameters += count;
    summary.parameter_bytes += tensor.node()->value.bytes();
    summary.shapes.push_back({name, tensor.shape(), tensor.requires_grad()});
  }
  for (const auto& [name, array] : optimizer_->state()) summary.optimizer_bytes += array.bytes();
  const data::DatasetInfo& info = data_.data.info;
  summary.tokens_sha256 = info.tokens_sha256;
  summary.base_sha256 = base_sha256();
  const int64_t accumulation = recipe_.train.batch_size / *recipe_.train.micro_batch;
  const int64_t batches = train_stream_->batches_per_epoch();
  summary.steps_per_epoch = (batches + accumulation - 1) / accumulation;
  summary.samples_per_step = static_cast<double>(recipe_.train.batch_size);
  summary.left_out_samples = std::max<int64_t>(
      0, data_.data.train->samples() - summary.steps_per_epoch * recipe_.train.batch_size);
  if (network_->language_model() != nullptr) {
    const auto samples = static_cast<double>(data_.data.train->samples());
    const double used = 1 - static_cast<double>(summary.left_out_samples) / samples;
    summary.tokens_per_step =
        info.train_tokens * used / static_cast<double>(summary.steps_per_epoch);
  }
  summary.model = network_->description();
  summary.batch = str(recipe_.train.batch_size, " samples of ", info.description);
  data::Batch example;
  data::make_stream(data_.data, data::Split::kTrain, data_.options)->next(example);
  const graph::PoolScope scope(pool_);
  summary.arena_bytes = plan_for(example).arena_bytes();
  if (accumulation > 1) {  // and the sums of their gradients
    for (const TrainedParameter& p : trained_)
      summary.arena_bytes += p.tensor.node()->value.bytes();
  }
  return summary;
}

bool GraphTask::next_batch(data::Batch& batch, bool first) {
  const graph::ObservedPart part("data");
  if (overfit_ && !batch.fields.empty()) return true;
  if (train_stream_->next(batch)) return true;
  if (first) LUMEN_CHECK(train_stream_->next(batch));
  return first;
}

TrainingStep& GraphTask::plan_for(const data::Batch& batch) const {
  auto& plan = plans_[shape_key(batch)];
  if (!plan) {
    const graph::ObservedPart part("compilation");
    // What "highest" names is no type: float32.
    const StepOptions options = {
        .compute = dtype_named(recipe_.train.precision).value_or(DType::kF32),
        .scaled = recipe_.train.precision == "f16"};
    plan = std::make_unique<TrainingStep>(*network_, trained_, batch, options);
  }
  return *plan;
}

void GraphTask::add_gradients(const std::vector<Array>& gradients, bool first) {
  const graph::ObservedPart part("sum of gradients");
  if (accumulated_.empty()) {
    for (const Array& g : gradients) accumulated_.push_back(Array::zeros(DType::kF32, g.shape()));
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    float* sum = accumulated_[i].as_mutable<float>().data();
    const float* g = gradients[i].as<float>().data();
    if (first) {
      std::memcpy(sum, g, gradients[i].bytes());
    } else {
      kernels::axpy(pool_, gradients[i].elements(), 1, g, sum);
    }
  }
}

GraphTask::Sums GraphTask::accumulate() {
  const int64_t count = recipe_.train.batch_size / *recipe_.train.micro_batch;
  Sums sums;
  for (int64_t i = 0; i < count; ++i) {
    if (!next_batch(batch_, i == 0)) break;
    if (i == 0) samples_.clear();
    samples_.insert(samples_.end(), batch_.indices.begin(), batch_.indices.end());
    TrainingStep& plan = plan_for(batch_);
    plan.run(pool_, batch_, static_cast<int32_t>(recipe_.seed),
             static_cast<int32_t>(micro_steps_++), static_cast<float>(loss_scale()));
    sums.loss += plan.loss_sum();
    sums.tokens += batch_.tokens;
    sums.samples += static_cast<double>(batch_.samples);
    sums.gradients = plan.gradients();
    if (count > 1) {
      add_gradients(plan.gradients(), i == 0);
      sums.gradients = accumulated_;
    }
  }
  return sums;
}

double GraphTask::grad_norm(std::span<const Array> gradients) {
  const graph::ObservedPart part("gradient norm");
  return optim::grad_norm(pool_, gradients);
}

// The scaler's scale is one of mean losses, as in PyTorch: that of a sum would be too large by the
// number of its terms, and every halving of it costs a step. A power of two, so that no bit is
// lost, and the same for batches of any length, so that their gradients can be added up.
double GraphTask::loss_scale() const {
  const bool language = network_->language_model() != nullptr;
  const int64_t targets = recipe_.train.batch_size * (language ? *recipe_.data.max_length : 1);
  return scaler_.scale() / static_cast<double>(std::bit_floor(static_cast<uint64_t>(targets)));
}

StepResult GraphTask::step(double lr) {
  const graph::PoolScope scope(pool_);
  const kernels::ExactProductsScope exact(recipe_.train.precision == "highest");
  const Sums sums = accumulate();
  gradients_ = sums.gradients;
  // Means over the targets that count, whatever the lengths of the micro-batches.
  const double mean = 1 / std::max(1.0, sums.tokens);
  const bool scaled = recipe_.train.precision == "f16";
  const double unscale = mean / (scaled ? loss_scale() : 1);
  StepResult result;
  result.loss = sums.loss * mean;
  result.samples = sums.samples;
  result.tokens = network_->language_model() != nullptr ? sums.tokens : 0;
  result.grad_norm = grad_norm(sums.gradients) * unscale;
  result.finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (scaled) {
    const bool overflow = std::isfinite(result.loss) && !result.finite;
    scaler_.update(!overflow);
    if (overflow) {  // the scale was too large: the step is skipped, training goes on
      result.finite = true;
      result.updated = false;
      return result;
    }
  }
  if (!result.finite || norms_.add(result.grad_norm, recipe_.train.skip_outlier_sigma)) {
    result.updated = false;
    return result;
  }
  const graph::ObservedPart part("optimizer");
  double scale = unscale;
  const double clip = recipe_.train.grad_clip;
  if (clip > 0) scale *= optim::clip_factor(result.grad_norm, clip);
  if (recipe_.train.grad_clip_value > 0) {
    optim::clip_grad_value(pool_, sums.gradients, recipe_.train.grad_clip_value / scale);
  }
  optimizer_->step(pool_, sums.gradients, lr, scale);
  return result;
}

bool GraphTask::has_finite_weights() const {
  return std::ranges::all_of(
      trained_, [](const TrainedParameter& p) { return is_finite(p.tensor.node()->value); });
}

NonfinitePlace GraphTask::find_nonfinite() const {
  NonfinitePlace place;
  for (size_t i = trained_.size(); i-- > 0;) {
    if (!is_finite(trained_[i].tensor.node()->value)) place.weight = trained_[i].name;
    if (i < gradients_.size() && !is_finite(gradients_[i])) place.gradient = trained_[i].name;
  }
  place.samples = samples_;
  return place;
}

EvaluationStep& GraphTask::evaluation_of(const data::Batch& batch) {
  auto& plan = evaluations_[shape_key(batch)];
  if (!plan) plan = std::make_unique<EvaluationStep>(*network_, batch);
  plan->run(pool_, batch);
  return *plan;
}

double GraphTask::loss_after_step() {
  if (batch_.fields.empty()) return 0;
  const graph::PoolScope scope(pool_);
  return evaluation_of(batch_).loss_sum() / std::max(1.0, batch_.tokens);
}

uint64_t GraphTask::evaluation_bytes() const {
  const graph::PoolScope scope(pool_);
  const auto split = data_.data.eval == nullptr ? data::Split::kTrain : data::Split::kEval;
  data::Batch example;
  data::make_stream(data_.data, split, data_.options)->next(example);
  return EvaluationStep(*network_, example).arena_bytes();
}

std::map<std::string, double> GraphTask::evaluate(const StopCheck& stops) {
  if (data_.data.eval == nullptr) return {};
  const graph::PoolScope scope(pool_);
  const kernels::ExactProductsScope exact(recipe_.train.precision == "highest");
  const auto stream = data::make_stream(data_.data, data::Split::kEval, data_.options, &pool_);
  data::Batch batch;
  double loss = 0, count = 0, correct = 0, bytes = 0;
  if (!target_bytes_ && network_->language_model() && data_.tokenizer) {
    target_bytes_.emplace(data_.tokenizer);
  }
  bool has_classes = false;
  for (int64_t i = 0; recipe_.eval.max_batches == 0 || i < recipe_.eval.max_batches; ++i) {
    if (stops()) return {};
    if (!stream->next(batch)) break;
    const EvaluationStep& plan = evaluation_of(batch);
    loss += plan.loss_sum();
    count += batch.tokens;
    if (target_bytes_) bytes += target_bytes_->count(batch);
    correct += static_cast<double>(plan.correct(batch));
    has_classes = plan.has_classes();
  }
  if (count == 0) return {};
  std::map<std::string, double> metrics = {{"eval_loss", loss / count}};
  if (has_classes) metrics["eval_accuracy"] = correct / count;
  if (network_->language_model()) metrics["eval_perplexity"] = std::exp(loss / count);
  if (bytes > 0) metrics["eval_bits_per_byte"] = loss / bytes / std::numbers::ln2;
  return metrics;
}

// Of the config that the network is made from and of the weights that stay as they are.
std::string GraphTask::base_sha256() const {
  if (base_ == nullptr) return "";
  io::Sha256 hash;
  hash.update(config_.dump());
  if (recipe_.lora.rank) hash_tensors(base_->tensors, hash);
  return hash.hex();
}

NamedArrays GraphTask::weights() const {
  NamedArrays arrays;
  for (const auto& [name, tensor] : parameters_.named()) {
    // Frozen parts of additions are not in the base.
    const bool is_own = !recipe_.lora.rank || name.find(".lora_") != name.npos;
    if (is_own || tensor.requires_grad()) arrays[name] = tensor.node()->value;
  }
  return arrays;
}

TaskState GraphTask::state() const {
  TaskState state;
  state.weights = weights();
  state.optimizer = optimizer_->state();
  state.json = {{"data", train_stream_->cursor()},
                {"micro_steps", micro_steps_},
                {"scaler", scaler_.state()},
                {"norms", norms_.state()}};
  return state;
}

void GraphTask::restore(const TaskState& state) {
  const auto own = weights();
  for (const auto& [name, array] : own) {
    auto found = state.weights.find(name);
    if (found == state.weights.end()) {
      fail(ErrorKind::kMismatch, "tensor ", quoted(name), " ", to_string(array.shape()),
           " is not in the checkpoint");
    }
    const Array& there = found->second;
    if (there.shape() == array.shape() && there.dtype() == array.dtype()) continue;
    fail(ErrorKind::kMismatch, "tensor ", quoted(name), " ", to_string(array.shape()), " ",
         lumen::name(array.dtype()), " is ", to_string(there.shape()), " ",
         lumen::name(there.dtype()), " in the checkpoint");
  }
  for (const auto& [name, array] : own) {
    Array target = array;
    std::memcpy(target.mutable_data(), state.weights.at(name).data(), array.bytes());
  }
  optimizer_->load_state(state.optimizer);
  train_stream_->restore(state.json.at("data"));
  micro_steps_ = io::get_int(state.json, "micro_steps", 0, kMostMicroSteps);
  scaler_.load_state(state.json.at("scaler"));
  norms_.load_state(state.json.at("norms"));
}

ExportedModel GraphTask::exported() const {
  ExportedModel model = {config_, weights(), recipe_.exported.dtype, &data_,
                         recipe_.tokenizer.path ? nullptr : base_.get()};
  join_starts(model.weights);
  if (recipe_.lora.rank && recipe_.exported.merge_lora) model.weights = parameters_.merged();
  to_hugging_face(model.weights, model.config);
  return model;
}

void GraphTask::export_model(const std::string& directory) {
  const ExportedModel model = exported();
  if (makes_adapter(recipe_)) {
    write_adapter(directory, model,
                  peft_adapter(model, recipe_.lora, lora_, base_model_name(recipe_)));
  } else {
    write_model(directory, model);
  }
}

// Whether what a GGUF file has as tensors can be said in config.json.
void GraphTask::check_position_scaling() {
  if (makes_adapter(recipe_) && nn::has_multiplied_weights(config_)) {
    fail(ErrorKind::kUnsupported,
         "an adapter cannot be trained for a Falcon-H1 in GGUF, which has the multipliers of its "
         "directory in its weights: name the directory as base, or say export.merge_lora = true");
  }
  io::Json config = config_;
  if (makes_adapter(recipe_) || nn::set_rope_scaling(parameters_.state_dict(), config)) return;
  notices_.push_back(
      "the position scaling of the model (rope_freqs.weight) has no name in config.json: of the "
      "result, only Lumen knows it");
}

int64_t GraphTask::sample_context() const {
  return std::min<int64_t>(network_->language_model()->max_positions(), *recipe_.data.max_length);
}

std::vector<std::string> GraphTask::sample(const std::vector<std::string>& prompts,
                                           int64_t max_tokens, const StopCheck& stops) {
  const models::CausalLm* lm = network_->language_model();
  if (lm == nullptr || data_.tokenizer == nullptr) return {};
  const ContinuationOptions options = {.context = sample_context(),
                                       .max_tokens = max_tokens,
                                       .seed = static_cast<uint64_t>(recipe_.seed),
                                       .threads = pool_.threads()};
  return continue_prompts(*lm, data_, prompts, options, stops);
}

std::vector<std::string> GraphTask::preview(int64_t count) {
  const auto stream = data::make_stream(data_.data, data::Split::kTrain, data_.options);
  stream->restore(train_stream_->cursor());
  std::vector<std::string> texts;
  data::Batch batch;
  while (static_cast<int64_t>(texts.size()) < count && stream->next(batch)) {
    for (int64_t row = 0; row < batch.samples && static_cast<int64_t>(texts.size()) < count;
         ++row) {
      texts.push_back(describe_sample(batch, row, data_));
    }
  }
  return texts;
}

}  // namespace

std::unique_ptr<TrainTask> make_task(const Recipe& recipe, const TaskOptions& options) {
  return std::make_unique<GraphTask>(recipe, options);
}

}  // namespace lumen::runtime
