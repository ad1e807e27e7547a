#include "lib/runtime/language_model.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>

#include "lib/base/error.h"
#include "lib/graph/plan.h"
#include "lib/kernels/convert.h"
#include "lib/runtime/lora.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using graph::Tensor;

constexpr int64_t kDefaultContext = 4096;
// Long prompts run in chunks of this many tokens: enough for full speed of the products, small
// enough that intermediate results stay modest and Ctrl-C is heard.
constexpr int64_t kChunk = 512;
// Logits of all positions are wide: [tokens, vocab] float32 of a smaller chunk.
constexpr int64_t kLogitsChunk = 64;

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
    config[key] = parsed.is_discarded() ? io::Json(value) : std::move(parsed);
  }
  return config;
}

// Bytes this process may still take: free memory, capped by its address-space limit.
uint64_t available_memory() {
  uint64_t available = std::numeric_limits<uint64_t>::max();
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    uint64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) available = kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    std::ifstream status("/proc/self/statm");
    uint64_t pages = 0;
    status >> pages;
    const uint64_t used = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    available = std::min<uint64_t>(available, limit.rlim_cur > used ? limit.rlim_cur - used : 0);
  }
  return available;
}

// Looks at every number that can spoil a result: all elements of float tensors, all block scales
// of quantised ones.
void require_finite(const std::map<std::string, Array>& tensors, ThreadPool& pool) {
  for (const auto& entry : tensors) {
    const Array& array = entry.second;
    if (!is_float(array.dtype()) && !is_quantized(array.dtype())) continue;
    const int64_t rows = array.shape().rank() > 1 ? array.elements() / array.shape()[-1] : 1;
    const int64_t columns = rows > 0 ? array.elements() / rows : 0;
    const int64_t bytes = row_bytes(array.dtype(), columns);
    std::atomic<int64_t> bad{-1};
    const int64_t grain = std::max<int64_t>(1, (1 << 20) / std::max<int64_t>(1, bytes));
    pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        if (kernels::has_nonfinite(array.dtype(), array.data() + row * bytes, columns)) bad = row;
      }
    });
    if (bad >= 0) {
      fail(ErrorKind::kMalformed, "tensor ", quoted(entry.first), " has a NaN or infinite ",
           is_quantized(array.dtype()) ? "scale" : "value", " in row ", bad.load(),
           "; the file is damaged (--allow-nonfinite opens it all the same)");
    }
  }
}

// A compiled forward pass over a fixed number of tokens.
struct Forward {
  graph::Plan plan;
  int32_t* token_ids;
  int32_t* start;

  void run(ThreadPool& pool, std::span<const int32_t> ids, int64_t at) {
    std::copy(ids.begin(), ids.end(), token_ids);
    *start = static_cast<int32_t>(at);
    plan.run(pool);
  }
};

enum class Wanted { kNothing, kLastLogits, kAllLogits };

class Decoder : public LanguageModel {
 public:
  Decoder(const io::ModelFiles& files, const LoadOptions& options);
  Decoder(const models::CausalLm& model, int64_t context, int threads);

  int64_t vocab() const override { return model_->vocab_size(); }
  int64_t context() const override { return cache_->shape().context; }
  int64_t position() const override { return position_; }
  const MemoryPlan& memory() const override { return memory_; }
  ThreadPool& pool() override { return pool_; }

  std::span<const float> feed(std::span<const int32_t> tokens, const volatile bool* stop) override;
  Array logits(std::span<const int32_t> tokens) override;
  void rewind(int64_t position) override {
    LUMEN_CHECK(position >= 0 && position <= position_);
    if (position < position_) position_ = model_->keeps_positions() ? position : 0;
  }

 private:
  void open(const io::ModelFiles& files, const LoadOptions& options);
  void allocate_cache(const LoadOptions& options);
  std::unique_ptr<Forward> compile(int64_t tokens, Wanted wanted) const;
  Forward& prefill(int64_t tokens, Wanted wanted);

  ThreadPool pool_;
  std::map<std::string, Array> tensors_;  // keeps the files mapped
  std::unique_ptr<models::CausalLm> own_model_;
  const models::CausalLm* model_ = nullptr;  // own_model_, or one that is shared
  std::unique_ptr<nn::KvCache> cache_;
  std::unique_ptr<Forward> decode_;
  // The two shapes a long prompt needs: full chunks and the rest.
  std::map<std::pair<int64_t, Wanted>, std::unique_ptr<Forward>> prefills_;
  MemoryPlan memory_;
  int64_t position_ = 0;
};

Decoder::Decoder(const io::ModelFiles& files, const LoadOptions& options)
    : pool_(options.threads > 0 ? options.threads : default_thread_count()),
      tensors_(files.tensors) {
  graph::PoolScope scope(pool_);
  with_context(files.path, [&] { open(files, options); });
  allocate_cache(options);
  decode_ = compile(1, Wanted::kLastLogits);
  memory_.scratch_bytes = decode_->plan.arena_bytes();
}

Decoder::Decoder(const models::CausalLm& model, int64_t context, int threads)
    : pool_(threads), model_(&model) {
  graph::PoolScope scope(pool_);
  cache_ = std::make_unique<nn::KvCache>(model.cache_shape(1, context), DType::kF32);
  decode_ = compile(1, Wanted::kLastLogits);
}

void Decoder::open(const io::ModelFiles& files, const LoadOptions& options) {
  const io::Json config = with_overrides(files.config, options.overrides);
  nn::Parameters parameters = nn::Parameters::from_checkpoint(tensors_);
  if (!options.lora.empty()) {
    const LoraAdapter adapter = read_adapter(options.lora, config);
    parameters = parameters.with_lora(adapter.options, adapter.tensors);
  }
  own_model_ = models::find_model_def(config).make(config, parameters);
  model_ = own_model_.get();
  models::check_tensors(parameters);
  if (!options.allow_nonfinite) require_finite(tensors_, pool_);
  memory_.weight_bytes = files.file_bytes;
}

void Decoder::allocate_cache(const LoadOptions& options) {
  const int64_t most = model_->max_positions();
  const int64_t context = options.context > 0 ? options.context : std::min(most, kDefaultContext);
  if (context > most) {
    fail(ErrorKind::kUsage, "--ctx ", context, " is more than the model's ", most,
         " positions (--set max_position_embeddings=", context, " overrides it)");
  }
  const nn::KvCacheShape shape = model_->cache_shape(1, context);
  memory_.kv_bytes = nn::KvCache::bytes(shape, options.kv_type);
  const uint64_t available = options.memory_limit ? options.memory_limit : available_memory();
  if (memory_.kv_bytes > available) {
    fail(ErrorKind::kResource, "the KV cache for ", context, " positions needs ",
         human_bytes(memory_.kv_bytes), ", available are ", human_bytes(available),
         "; use a smaller --ctx or --kv q8_0");
  }
  cache_ = std::make_unique<nn::KvCache>(shape, options.kv_type);
}

std::unique_ptr<Forward> Decoder::compile(int64_t tokens, Wanted wanted) const {
  Tensor ids = graph::input(DType::kI32, {1, tokens}, "tokens");
  Tensor position = graph::input(DType::kI32, {1}, "position");
  Tensor out = model_->hidden(ids, position, cache_.get());
  if (wanted != Wanted::kAllLogits) out = graph::slice(out, 1, tokens - 1, tokens);
  if (wanted != Wanted::kNothing) out = model_->logits(out);
  graph::Plan plan = graph::compile(std::span(&out, 1), {.threads = pool_.threads()});
  int32_t* token_ids = plan.input(ids).as_mutable<int32_t>().data();
  int32_t* start = plan.input(position).as_mutable<int32_t>().data();
  return std::make_unique<Forward>(Forward{std::move(plan), token_ids, start});
}

Forward& Decoder::prefill(int64_t tokens, Wanted wanted) {
  auto found = prefills_.find({tokens, wanted});
  if (found != prefills_.end()) return *found->second;
  // Keep the full chunk; a rest of another length takes the place of the last rest.
  std::erase_if(prefills_, [](const auto& entry) { return entry.first.first != kChunk; });
  return *(prefills_[{tokens, wanted}] = compile(tokens, wanted));
}

std::span<const float> Decoder::feed(std::span<const int32_t> tokens, const volatile bool* stop) {
  LUMEN_CHECK(!tokens.empty() && position_ + static_cast<int64_t>(tokens.size()) <= context());
  const Forward* last = nullptr;
  while (!tokens.empty()) {
    const auto count = std::min<int64_t>(kChunk, static_cast<int64_t>(tokens.size()));
    const bool ends = count == static_cast<int64_t>(tokens.size());
    Forward& forward =
        count == 1 ? *decode_ : prefill(count, ends ? Wanted::kLastLogits : Wanted::kNothing);
    forward.run(pool_, tokens.first(count), position_);
    position_ += count;
    tokens = tokens.subspan(count);
    last = &forward;
    if (!ends && stop && *stop) return {};
  }
  return last->plan.output(0).as<float>();
}

Array Decoder::logits(std::span<const int32_t> tokens) {
  position_ = 0;
  Array all = Array::zeros(DType::kF32, {static_cast<int64_t>(tokens.size()), vocab()});
  std::span<float> out = all.as_mutable<float>();
  while (!tokens.empty()) {
    const auto count = std::min<int64_t>(kLogitsChunk, static_cast<int64_t>(tokens.size()));
    Forward& forward = prefill(count, Wanted::kAllLogits);
    forward.run(pool_, tokens.first(count), position_);
    position_ += count;
    tokens = tokens.subspan(count);
    const std::span<const float> piece = forward.plan.output(0).as<float>();
    std::copy(piece.begin(), piece.end(), out.begin());
    out = out.subspan(piece.size());
  }
  return all;
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
