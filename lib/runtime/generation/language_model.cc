#include "lib/runtime/generation/language_model.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <system_error>

#include "lib/base/error.h"
#include "lib/graph/plan.h"
#include "lib/graph/plan_observer.h"
#include "lib/io/sha256.h"
#include "lib/runtime/adapters/apply_adapter.h"
#include "lib/runtime/adapters/combine_adapters.h"
#include "lib/runtime/adapters/lora.h"
#include "lib/runtime/generation/weights.h"
#include "lib/runtime/tool/available_memory.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using graph::Tensor;

constexpr int64_t kDefaultContext = 4096;
// Long prompts run in chunks of this many tokens: enough for full speed of the products, small
// enough that intermediate results stay modest.
constexpr int64_t kChunk = 512;
// Most slots of one pass of step(): with more rows tiles (AMX) take over, which round differently.
constexpr int64_t kMostShared = 24;
// Logits of all positions are wide: [tokens, vocab] float32 of a smaller chunk.
constexpr int64_t kLogitsChunk = 64;

// What a pass repacks: this part of the weights, and at least so many bytes, as the plans have to
// be compiled again.
constexpr uint64_t kShares = 16, kLeastShare = uint64_t{64} << 20;
constexpr uint64_t kAll = ~uint64_t{0};
constexpr std::string_view kRepacking = "repacking the weights";  // in a profile
// How often who waits for the repacking looks whether it is to stop.
constexpr std::chrono::milliseconds kStopPoll{10};

io::Json with_overrides(io::Json config, const std::vector<std::string>& overrides) {
  for (const std::string& item : overrides) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0) {
      fail(ErrorKind::kUsage, "--set ", quoted(item), ": expected key=value");
    }
    const std::string key = item.substr(0, equals), value = item.substr(equals + 1);
    if (!config.contains(key)) {
      std::vector<std::string> keys;
      for (const auto& member : config.items()) keys.push_back(member.key());
      const std::string near = nearest(key, keys);
      fail(ErrorKind::kUsage, "--set ", quoted(key), ": the model's config has no such key",
           near.empty() ? "" : str("; did you mean ", near, "?"));
    }
    io::Json parsed = io::Json::parse(value, nullptr, false);
    if (parsed.is_discarded()) parsed = value;
    if (parsed.is_string() && !config[key].is_string() && !config[key].is_null()) {
      fail(ErrorKind::kUsage, "--set ", quoted(item), ": the model has ",
           io::describe(&config[key]), " there");
    }
    config[key] = std::move(parsed);
  }
  return config;
}

// A compiled forward pass over a fixed number of tokens.
struct Forward {
  graph::Plan plan;
  std::span<int32_t> token_ids;  // [batch, tokens]
  std::span<int32_t> starts;     // [batch]
  std::span<int32_t> slots;      // [batch]; empty if the cache has one

  // For a batch of 1. Empty if `*stop` became true.
  std::span<const float> run(ThreadPool& pool, std::span<const int32_t> ids, int64_t at,
                             int64_t slot, const std::atomic<bool>* stop = nullptr) {
    std::copy(ids.begin(), ids.end(), token_ids.begin());
    starts[0] = static_cast<int32_t>(at);
    if (!slots.empty()) slots[0] = static_cast<int32_t>(slot);
    return run(pool, stop);
  }
  std::span<const float> run(ThreadPool& pool, const std::atomic<bool>* stop = nullptr) {
    if (!plan.run(pool, stop)) return {};
    return plan.output(0).as<float>();
  }
};

enum class Wanted { kNothing, kLastLogits, kAllLogits };

// What an adapter's tensors are multiplied by.
std::string text_of(const nn::LoraOptions& options) {
  std::string text = str(options.rank, " ", io::Json(options.scale).dump(), "\n");
  for (const auto& [place, own] : options.own) {
    text += str(place, " ", own.rank, " ", io::Json(own.scale).dump(), "\n");
  }
  return text;
}

// A forward pass as it is recorded. `slots` is not defined if there is only one.
struct Recording {
  Tensor ids, position, slots, out;
};

class Decoder : public LanguageModel {
 public:
  Decoder(const io::ModelFiles& files, const LoadOptions& options);
  Decoder(const models::CausalLm& model, int64_t context, int threads);
  ~Decoder() override;

  void repack_ahead() override;
  void repack() override { begin_pass(/*several=*/true); }
  int64_t vocab() const override { return model_->vocab_size(); }
  int64_t context() const override { return cache_->shape().context; }
  int64_t position() const override { return positions_[slot_]; }
  int64_t max_positions() const override { return model_->max_positions(); }
  const MemoryPlan& memory() const override { return memory_; }
  ThreadPool& pool() override { return pool_; }
  bool keeps_positions() const override { return model_->keeps_positions(); }
  int64_t slots() const override { return cache_->shape().batch; }
  void select(int64_t slot) override {
    LUMEN_CHECK(slot >= 0 && slot < slots());
    slot_ = slot;
  }

  std::span<const float> feed(std::span<const int32_t> tokens,
                              const std::atomic<bool>* stop) override;
  std::span<const float> feed_each(std::span<const int32_t> tokens) override;
  void prepare(std::span<const int64_t> token_counts) override;
  std::span<const float> step(std::span<const int32_t> slots,
                              std::span<const int32_t> tokens) override;
  Array logits(std::span<const int32_t> tokens) override;
  void rewind(int64_t position) override {
    LUMEN_CHECK(position >= 0 && position <= positions_[slot_]);
    if (position < positions_[slot_]) positions_[slot_] = keeps_positions() ? position : 0;
  }

  void save_state(int64_t positions,
                  FunctionRef<void(std::span<const std::byte>)> sink) const override;
  void load_state(int64_t positions, int64_t stored, std::span<const std::byte> bytes) override;
  uint64_t position_bytes() const override;
  std::string fingerprint() const override;

 private:
  void open(const io::ModelFiles& files, const io::Json& config, const LoadOptions& options,
            const std::optional<LoraAdapter>& adapter);
  void make_model(const io::Json& config, const LoadOptions& options,
                  std::optional<LoraAdapter> adapter);
  void allocate_cache(const LoadOptions& options);
  void prepare_weights(const Tensor& logits, const LoadOptions& options);
  void release_rows();
  Recording record(int64_t batch, int64_t tokens, Wanted wanted) const;
  std::unique_ptr<Forward> compile(const Recording& pass) const;
  Forward& prefill(int64_t tokens, Wanted wanted);
  Forward& decode();
  Forward& verifier(int64_t tokens);
  void begin_pass(bool several = false, const std::atomic<bool>* stop = nullptr);

  ThreadPool pool_;
  NamedArrays tensors_;        // keeps the files mapped
  bool long_context_ = false;  // CausalLm::set_context
  std::string fingerprint_;    // of all tensors, if some are released; else ""
  NamedArrays adapter_;
  nn::LoraOptions adapter_options_;
  io::Json config_;
  std::unique_ptr<models::CausalLm> own_model_;
  const models::CausalLm* model_ = nullptr;  // own_model_, or one that is shared
  std::unique_ptr<nn::KvCache> cache_;
  std::unique_ptr<Forward> decode_;
  // The two shapes a long prompt needs: full chunks and the rest.
  std::map<std::pair<int64_t, Wanted>, std::unique_ptr<Forward>> prefills_;
  std::map<int64_t, std::unique_ptr<Forward>> verifiers_;  // feed_each, by tokens
  std::map<int64_t, std::unique_ptr<Forward>> steps_;      // step, by slots
  std::vector<float> step_logits_;                         // of several passes
  // Rows of a product that get the bits that each gets alone, whatever is in the other rows.
  int64_t shared_rows_ = kMostVerified;
  MemoryPlan memory_;
  DType kv_type_ = DType::kF32;
  int64_t slot_ = 0;
  std::vector<int64_t> positions_;  // of the slots

  // Of the weights of products.
  Repacking repacking_;
  bool passed_ = false;                 // a first time over the weights
  std::future<RepackedBytes> packing_;  // by a thread of its own; valid until a pass waits for it
  std::atomic<bool> stop_packing_ = false;
};

Decoder::Decoder(const io::ModelFiles& files, const LoadOptions& options)
    : pool_(options.threads > 0 ? options.threads : default_thread_count()),
      tensors_(files.tensors),
      kv_type_(options.kv_type) {
  graph::PoolScope scope(pool_);
  const io::Json config =
      with_context(files.path, [&] { return with_overrides(files.config, options.overrides); });
  std::optional<LoraAdapter> adapter;
  if (!options.lora.empty()) adapter = read_adapters(options.lora, config);
  with_context(files.path, [&] { open(files, config, options, adapter); });
  allocate_cache(options);
  const Recording pass = record(1, 1, Wanted::kLastLogits);
  with_context(files.path, [&] { prepare_weights(pass.out, options); });
  decode_ = compile(pass);
  memory_.scratch_bytes = decode_->plan.arena_bytes();
}

Decoder::Decoder(const models::CausalLm& model, int64_t context, int threads)
    : pool_(threads), model_(&model), positions_(1) {
  graph::PoolScope scope(pool_);
  cache_ = std::make_unique<nn::KvCache>(model.cache_shape(1, context), kv_type_);
  decode_ = compile(record(1, 1, Wanted::kLastLogits));
}

Decoder::~Decoder() {
  stop_packing_ = true;
  if (packing_.valid()) packing_.wait();
}

void Decoder::open(const io::ModelFiles& files, const io::Json& config, const LoadOptions& options,
                   const std::optional<LoraAdapter>& adapter) {
  memory_.weight_bytes = files.file_bytes;
  try {
    make_model(config, options, adapter);
  } catch (const Error& error) {
    const bool of_input =
        error.kind() == ErrorKind::kMalformed || error.kind() == ErrorKind::kUnsupported;
    if (options.overrides.empty() || !of_input) throw;
    try {
      tensors_ = files.tensors;
      make_model(files.config, options, adapter);
    } catch (const Error&) {
      throw error;  // not the overrides' fault
    }
    fail(ErrorKind::kUsage, "--set ", join(options.overrides, " "), ": ", error.what());
  }
}

void Decoder::make_model(const io::Json& config, const LoadOptions& options,
                         std::optional<LoraAdapter> adapter) {
  config_ = config;
  if (adapter) {
    with_context(join(options.lora, ", "), [&] {
      if (!options.allow_nonfinite) require_finite(adapter->tensors, pool_);
      apply_adapter(*adapter, config_, tensors_);
    });
    adapter_ = adapter->tensors;
    adapter_options_ = adapter->options;
  }
  widen_narrow_rows(tensors_, pool_);
  nn::Parameters parameters = nn::Parameters::from_checkpoint(tensors_);
  if (!adapter_.empty()) {
    parameters = parameters.with_lora(adapter_options_, adapter_, adapter->place);
  }
  own_model_ = models::find_model_def(config_).make(config_, parameters);
  model_ = own_model_.get();
  models::check_tensors(parameters);
}

void Decoder::allocate_cache(const LoadOptions& options) {
  const int64_t most = model_->max_positions();
  const int64_t context = options.context > 0 ? options.context : std::min(most, kDefaultContext);
  if (context > most) {
    fail(ErrorKind::kUsage, "--ctx ", context, " is more than the model's ", most,
         " positions (--set max_position_embeddings=", context, " overrides it)");
  }
  memory_.available_bytes = options.memory_limit ? options.memory_limit : available_memory();
  int64_t slots = options.slots;
  auto bytes = [&](int64_t count) {
    return nn::KvCache::bytes(model_->cache_shape(count, context), kv_type_);
  };
  if (options.fewer_slots) {
    if (!model_->keeps_several()) slots = 1;
    while (slots > 1 && bytes(slots) > memory_.available_bytes / 2) --slots;
  }
  if (slots > 1 && !model_->keeps_several()) {
    fail(ErrorKind::kUnsupported, "a recurrent model keeps the state of one text, not of ", slots,
         ": use --parallel 1");
  }
  memory_.kv_bytes = bytes(slots);
  if (options.announce) options.announce(memory_);
  if (memory_.kv_bytes > memory_.available_bytes) {
    fail(ErrorKind::kResource, "the KV cache for ", context, " positions",
         slots > 1 ? str(" of ", slots, " texts") : "", " needs ", human_bytes(memory_.kv_bytes),
         ", available are ", human_bytes(memory_.available_bytes), "; use a smaller --ctx",
         slots > 1 ? ", a smaller --parallel" : "", " or --kv q8_0");
  }
  if (own_model_) long_context_ = own_model_->set_context(context);
  const nn::KvCacheShape shape = model_->cache_shape(slots, context);
  cache_ = std::make_unique<nn::KvCache>(shape, kv_type_);
  positions_.resize(static_cast<size_t>(slots));
}

// Checks the weights and, if memory allows, chooses those of the products that make `logits` to be
// repacked.
void Decoder::prepare_weights(const Tensor& logits, const LoadOptions& options) {
  if (!options.allow_nonfinite) require_finite(tensors_, pool_);
  memory_.read_bytes = product_weight_bytes(logits);
  if (!options.repack) return;
  auto weights = packable_weights(logits);
  if (weights.empty()) return;
  const uint64_t needed = packed_bytes(weights);
  const uint64_t available =
      options.memory_limit ? options.memory_limit - memory_.kv_bytes : available_memory();
  std::string lack;
  if (needed > available) {
    lack =
        str("repacked they need ", human_bytes(needed), ", available are ", human_bytes(available));
  } else {
    try {
      repacking_ = Repacking(std::move(weights), available);
    } catch (const Error& error) {
      lack = error.what();  // what is available was an estimate
    }
  }
  if (!lack.empty()) {
    memory_.notice = "the weights stay as they are in the file, which is slower: " + lack;
    return;
  }
  release_rows();
  memory_.packed_bytes = needed;
  if (are_quantized_panels(logits)) shared_rows_ = kMostShared;
}

// Weights that were unpacked when the model was opened (packed_weights.h) are no pages of a file
// that can be dropped: as they are repacked their rows go with the last array that refers to them.
void Decoder::release_rows() {
  const auto is_in_memory = [](const auto& entry) {
    const Buffer* buffer = entry.second.buffer();
    return buffer != nullptr && !buffer->mapped;
  };
  if (std::none_of(tensors_.begin(), tensors_.end(), is_in_memory)) return;
  fingerprint_ = fingerprint();
  std::erase_if(tensors_, is_in_memory);
}

void Decoder::repack_ahead() {
  if (packing_.valid() || repacking_.done()) return;
  try {
    packing_ = std::async(std::launch::async, [this] {
      return repacking_.advance(kAll, pool_, [this] { return stop_packing_.load(); });
    });
  } catch (const std::system_error&) {
    // No thread is to be had: the next passes repack.
  }
}

// Comes before every pass over the weights, or before `several`. The first pass reads the rows of
// the file, so that the first token does not wait for the repacking; each of the next repacks a
// share, so that a short answer pays for what it uses. `*stop` ends the repacking.
void Decoder::begin_pass(bool several, const std::atomic<bool>* stop) {
  RepackedBytes change;
  if (packing_.valid()) {
    const graph::ObservedPart part(kRepacking);
    while (stop) {
      if (*stop) stop_packing_ = true;
      if (packing_.wait_for(kStopPoll) == std::future_status::ready) break;
    }
    change = packing_.get();
    stop_packing_ = false;
  } else if (repacking_.done()) {
    return;
  } else if (passed_ || several) {
    const graph::ObservedPart part(kRepacking);
    const uint64_t share = std::max(memory_.packed_bytes / kShares, kLeastShare);
    change = repacking_.advance(several ? kAll : share, pool_, [&] { return stop && *stop; });
  } else {
    passed_ = true;
    return;
  }
  memory_.read_bytes += static_cast<uint64_t>(change.read);
  memory_.packed_bytes += static_cast<uint64_t>(change.packed);
  decode_.reset();
  prefills_.clear();
  verifiers_.clear();
  steps_.clear();
}

Recording Decoder::record(int64_t batch, int64_t tokens, Wanted wanted) const {
  Recording pass{graph::input(DType::kI32, {batch, tokens}, "tokens"),
                 graph::input(DType::kI32, {batch}, "position"),
                 {},
                 {}};
  nn::KvCache cache = *cache_;
  if (slots() > 1) {
    pass.slots = graph::input(DType::kI32, {batch}, "slots");
    cache = cache.with_slots(pass.slots);
  }
  const int64_t count = wanted == Wanted::kAllLogits ? tokens : 1;
  pass.out = model_->last_hidden(pass.ids, pass.position, cache, count);
  if (wanted != Wanted::kNothing) pass.out = model_->logits(pass.out);
  return pass;
}

std::unique_ptr<Forward> Decoder::compile(const Recording& pass) const {
  graph::Plan plan = graph::compile(std::span(&pass.out, 1), {.threads = pool_.threads()});
  auto memory = [&](const Tensor& input) {
    return input.defined() ? plan.input(input).as_mutable<int32_t>() : std::span<int32_t>();
  };
  const auto token_memory = memory(pass.ids), position_memory = memory(pass.position),
             slot_memory = memory(pass.slots);
  return std::make_unique<Forward>(
      Forward{std::move(plan), token_memory, position_memory, slot_memory});
}

Forward& Decoder::decode() {
  if (!decode_) {
    graph::PoolScope scope(pool_);
    decode_ = compile(record(1, 1, Wanted::kLastLogits));
  }
  return *decode_;
}

Forward& Decoder::prefill(int64_t tokens, Wanted wanted) {
  auto found = prefills_.find({tokens, wanted});
  if (found != prefills_.end()) return *found->second;
  // Keep the full chunk; a rest of another length takes the place of the last rest.
  std::erase_if(prefills_, [](const auto& entry) { return entry.first.first != kChunk; });
  return *(prefills_[{tokens, wanted}] = compile(record(1, tokens, wanted)));
}

std::span<const float> Decoder::feed(std::span<const int32_t> tokens,
                                     const std::atomic<bool>* stop) {
  int64_t& position = positions_[slot_];
  LUMEN_CHECK(!tokens.empty() && position + static_cast<int64_t>(tokens.size()) <= context());
  // A recurrent model cannot go back to its state before a pass that was stopped half-way.
  const std::atomic<bool>* stop_inside = keeps_positions() ? stop : nullptr;
  begin_pass(static_cast<int64_t>(tokens.size()) > kChunk, stop);
  std::span<const float> last;
  while (!tokens.empty()) {
    const auto count = std::min<int64_t>(kChunk, static_cast<int64_t>(tokens.size()));
    const bool ends = count == static_cast<int64_t>(tokens.size());
    Forward& forward =
        count == 1 ? decode() : prefill(count, ends ? Wanted::kLastLogits : Wanted::kNothing);
    last = forward.run(pool_, tokens.first(count), position, slot_, stop_inside);
    if (last.empty()) return {};
    position += count;
    tokens = tokens.subspan(count);
    if (!ends && stop && *stop) return {};
  }
  return last;
}

Forward& Decoder::verifier(int64_t tokens) {
  LUMEN_CHECK(tokens > 1 && tokens <= kMostVerified);
  auto& forward = verifiers_[tokens];
  if (!forward) forward = compile(record(1, tokens, Wanted::kAllLogits));
  return *forward;
}

void Decoder::prepare(std::span<const int64_t> token_counts) {
  // What is compiled before the weights are repacked has to be compiled again.
  if (packing_.valid() || !repacking_.done()) return;
  for (const int64_t count : token_counts) {
    if (count <= context()) verifier(count);  // a longer one is never fed
  }
}

std::span<const float> Decoder::feed_each(std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  LUMEN_CHECK(keeps_positions() && positions_[slot_] + count <= context());
  begin_pass();
  const auto logits = verifier(count).run(pool_, tokens, positions_[slot_], slot_);
  positions_[slot_] += count;
  return logits;
}

std::span<const float> Decoder::step(std::span<const int32_t> slots,
                                     std::span<const int32_t> tokens) {
  const auto batch = static_cast<int64_t>(slots.size());
  LUMEN_CHECK(batch > 0 && batch <= this->slots() && slots.size() == tokens.size());
  if (batch > shared_rows_) {
    step_logits_.resize(slots.size() * static_cast<size_t>(vocab()));
    auto out = step_logits_.begin();
    for (size_t first = 0; first < slots.size(); first += static_cast<size_t>(shared_rows_)) {
      const size_t count = std::min(static_cast<size_t>(shared_rows_), slots.size() - first);
      const auto piece = step(slots.subspan(first, count), tokens.subspan(first, count));
      out = std::copy(piece.begin(), piece.end(), out);
    }
    return step_logits_;
  }
  begin_pass();
  auto& forward = batch == 1 ? decode_ : steps_[batch];
  if (!forward) forward = compile(record(batch, 1, Wanted::kLastLogits));
  for (size_t i = 0; i < slots.size(); ++i) {
    int64_t& position = positions_[static_cast<size_t>(slots[i])];
    LUMEN_CHECK(position < context());
    forward->starts[i] = static_cast<int32_t>(position++);
  }
  std::copy(tokens.begin(), tokens.end(), forward->token_ids.begin());
  if (!forward->slots.empty()) std::copy(slots.begin(), slots.end(), forward->slots.begin());
  return forward->run(pool_);
}

Array Decoder::logits(std::span<const int32_t> tokens) {
  int64_t& position = positions_[slot_];
  position = 0;
  begin_pass(static_cast<int64_t>(tokens.size()) > kLogitsChunk);
  Array all = Array::zeros(DType::kF32, {static_cast<int64_t>(tokens.size()), vocab()});
  std::span<float> out = all.as_mutable<float>();
  while (!tokens.empty()) {
    const auto count = std::min<int64_t>(kLogitsChunk, static_cast<int64_t>(tokens.size()));
    const auto piece =
        prefill(count, Wanted::kAllLogits).run(pool_, tokens.first(count), position, slot_);
    position += count;
    tokens = tokens.subspan(count);
    std::copy(piece.begin(), piece.end(), out.begin());
    out = out.subspan(piece.size());
  }
  return all;
}

void Decoder::save_state(int64_t positions,
                         FunctionRef<void(std::span<const std::byte>)> sink) const {
  LUMEN_CHECK(keeps_positions() && positions <= position());
  cache_->for_each_piece(slot_, positions, [&](std::span<std::byte> piece) { sink(piece); });
}

void Decoder::load_state(int64_t positions, int64_t stored, std::span<const std::byte> bytes) {
  LUMEN_CHECK(keeps_positions() && positions <= stored && positions <= context());
  LUMEN_CHECK(bytes.size() == position_bytes() * static_cast<uint64_t>(stored));
  if (positions == 0) return rewind(0);
  cache_->for_each_piece(slot_, positions, [&](std::span<std::byte> piece) {
    std::copy_n(bytes.begin(), piece.size(), piece.begin());
    bytes =
        bytes.subspan(piece.size() / static_cast<size_t>(positions) * static_cast<size_t>(stored));
  });
  positions_[slot_] = positions;
}

uint64_t Decoder::position_bytes() const {
  return nn::KvCache::bytes(model_->cache_shape(1, 1), kv_type_);
}

std::string Decoder::fingerprint() const {
  if (!fingerprint_.empty()) return fingerprint_;
  io::Sha256 hash;
  hash.update(str(config_.dump(), "\n", name(kv_type_), "\n"));
  if (long_context_) hash.update("long context\n");  // keys are rotated otherwise
  hash_tensors(tensors_, hash);
  hash_tensors(adapter_, hash);
  if (!adapter_.empty()) hash.update(text_of(adapter_options_));
  return hash.hex();
}

}  // namespace

std::unique_ptr<LanguageModel> LanguageModel::load(const io::ModelFiles& files,
                                                   const LoadOptions& options) {
  return std::make_unique<Decoder>(files, options);
}

std::unique_ptr<LanguageModel> LanguageModel::share(const models::CausalLm& model, int64_t context,
                                                    int threads) {
  return std::make_unique<Decoder>(model, context, threads);
}

}  // namespace lumen::runtime
