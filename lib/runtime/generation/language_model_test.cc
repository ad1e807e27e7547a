#include "lib/runtime/generation/language_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <random>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/short_panels.h"
#include "lib/tensor/named_arrays.h"
#include "models/model.h"

using namespace lumen;
using lumen::testing::contains;
using runtime::LanguageModel;
using runtime::LoadOptions;

namespace {

io::ModelFiles builtin() {
  return io::open_model(lumen::testing::source_path("testdata/models/random-spm.gguf"));
}

std::vector<int32_t> prompt(int64_t tokens, int64_t vocab) {
  std::vector<int32_t> ids(tokens);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 37 + 11) % vocab);
  return ids;
}

Array converted(const Array& array, DType dtype) {
  std::vector<float> numbers(static_cast<size_t>(array.elements()));
  kernels::to_float(array.dtype(), array.data(), numbers.data(), array.elements());
  Array to = Array::zeros(dtype, array.shape());
  kernels::from_float(dtype, numbers.data(), to.mutable_data(), array.elements());
  return to;
}

// `files` with the weights of the layers' linear layers as `dtype`.
io::ModelFiles converted(io::ModelFiles files, DType dtype) {
  for (auto& [name, array] : files.tensors) {
    if (name.ends_with("proj.weight")) array = converted(array, dtype);
  }
  return files;
}

// The same architecture four times as wide, with weights of q8_0: narrower ones would be widened.
io::ModelFiles quantized() {
  io::ModelFiles files = builtin();
  constexpr int64_t kTimes = 4;
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"}) {
    files.config[key] = kTimes * files.config[key].get<int64_t>();
  }
  const int64_t vocab = files.config["vocab_size"];
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (auto& [name, array] : files.tensors) {
    Shape shape = array.shape();
    for (int64_t i = 0; i < shape.rank(); ++i) {
      if (shape[i] != vocab) shape[i] *= kTimes;
    }
    const bool norm = shape.rank() == 1;
    array = Array::zeros(DType::kF32, shape);
    for (float& x : array.as_mutable<float>()) x = norm ? 1 : normal(random) / 16;
    if (!norm) array = converted(array, DType::kQ8_0);
  }
  return files;
}

std::string error_of(const io::ModelFiles& files, const LoadOptions& options, ErrorKind kind) {
  return lumen::testing::refusal(kind, [&] { LanguageModel::load(files, options); });
}

}  // namespace

TEST_CASE("one token at a time, chunks and one pass give the same logits") {
  LoadOptions options;
  options.kv_type = DType::kF32;
  const auto model = LanguageModel::load(builtin(), options);
  const std::vector<int32_t> ids = prompt(20, model->vocab());
  const Array all = model->logits(ids);
  const auto want = all.as<float>().subspan(19 * model->vocab(), model->vocab());
  auto check = [&](std::span<const float> got) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      difference += std::pow(got[i] - want[i], 2);
      norm += std::pow(want[i], 2);
    }
    // Rounding activations to int8 turns a last-bit difference into a step of one now and then.
    CHECK(std::sqrt(difference / norm) < 1e-2);
  };
  model->rewind(0);
  check(model->feed(ids));
  CHECK(model->position() == 20);
  model->rewind(7);
  for (size_t i = 7; i < 19; ++i) model->feed(std::span(ids).subspan(i, 1));
  check(model->feed(std::span(ids).subspan(19, 1)));
}

TEST_CASE("tokens fed together give the logits of one after the other") {
  const auto model = LanguageModel::load(GENERATE(false, true) ? quantized() : builtin(), {});
  const std::vector<int32_t> ids = prompt(40, model->vocab());
  for (const int64_t count : {2, 5, 8}) {
    CAPTURE(count);
    const auto tokens = std::span(ids).subspan(20, static_cast<size_t>(count));
    model->rewind(0);
    model->feed(std::span(ids).first(20));
    std::vector<float> want;
    for (const int32_t& token : tokens) {
      const auto logits = model->feed({&token, 1});
      want.insert(want.end(), logits.begin(), logits.end());
    }
    model->rewind(20);
    const auto got = model->feed_each(tokens);
    CHECK(std::equal(got.begin(), got.end(), want.begin(), want.end()));
    CHECK(model->position() == 20 + count);
  }
}

// 27 slots take more than one pass over the weights, and with stored rows (no repacking) four.
TEST_CASE("texts in slots of their own do not disturb each other") {
  constexpr size_t kSlots = 27;
  LoadOptions options;
  options.slots = kSlots;
  options.repack = GENERATE(true, false);
  options.context = 128;
  const io::ModelFiles files = GENERATE(false, true) ? quantized() : builtin();
  const auto model = LanguageModel::load(files, options);
  LoadOptions single = options;
  single.slots = 1;
  const auto alone = LanguageModel::load(files, single);
  const std::vector<int32_t> ids = prompt(60, model->vocab());
  std::vector<int32_t> slots(kSlots);
  std::iota(slots.begin(), slots.end(), 0);
  std::swap(slots[0], slots[2]);
  for (const int32_t slot : slots) {
    model->select(slot);
    model->feed(std::span(ids).first(static_cast<size_t>(5 + slot)));
  }
  const auto vocab = static_cast<size_t>(model->vocab());
  for (size_t active : {kSlots, size_t{24}, size_t{9}, size_t{6}, size_t{1}}) {
    const auto logits =
        model->step(std::span(slots).first(active), std::span(ids).subspan(30, active));
    for (size_t i = 0; i < active; ++i) {
      CAPTURE(active, i);
      model->select(slots[i]);
      const auto length = static_cast<size_t>(5 + slots[i]);
      alone->rewind(0);
      alone->feed(std::span(ids).first(length));
      std::span<const float> want;
      while (alone->position() < model->position()) {
        want = alone->feed(std::span(ids).subspan(30 + i, 1));
      }
      const auto got = logits.subspan(i * vocab, vocab);
      CHECK(std::equal(got.begin(), got.end(), want.begin(), want.end()));
    }
  }
}

TEST_CASE("fewer slots are taken where memory is short, if the caller allows it") {
  LoadOptions options;
  options.slots = 8;
  options.memory_limit = 8 * LanguageModel::load(builtin(), {})->memory().kv_bytes;
  CHECK(LanguageModel::load(builtin(), options)->slots() == 8);
  options.fewer_slots = true;
  CHECK(LanguageModel::load(builtin(), options)->slots() == 4);
  options.memory_limit /= 16;
  options.fewer_slots = false;
  CHECK(contains(error_of(builtin(), options, ErrorKind::kResource), "of 8 texts needs"));
}

TEST_CASE("logits do not depend on the number of threads") {
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 3}) {
    LoadOptions options;
    options.threads = threads;
    const auto model = LanguageModel::load(builtin(), options);
    const std::vector<int32_t> ids = prompt(33, model->vocab());
    model->feed(std::span(ids).first(32));
    const auto logits = model->feed(std::span(ids).subspan(32, 1));
    results.emplace_back(logits.begin(), logits.end());
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

TEST_CASE("a stop flag ends the reading of a prompt at once, and what was read stays right") {
  LoadOptions options;
  options.overrides = {"max_position_embeddings=4096"};
  options.context = 2000;
  const auto model = LanguageModel::load(builtin(), options);
  const auto fresh = LanguageModel::load(builtin(), options);
  const std::vector<int32_t> ids = prompt(40, model->vocab());
  const std::span<const int32_t> begin = std::span(ids).first(30), rest = std::span(ids).last(10);
  model->feed(begin);
  const std::atomic<bool> stop = true;
  CHECK(model->feed(rest, &stop).empty());
  CHECK(model->feed(prompt(1500, model->vocab()), &stop).empty());
  CHECK(model->position() == 30);
  fresh->feed(begin);
  const auto got = model->feed(rest), expected = fresh->feed(rest);
  CHECK(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
}

TEST_CASE("overrides are checked against the config and the tensors") {
  const io::ModelFiles files = builtin();
  LoadOptions options;
  options.overrides = {"rope_theta=5000"};
  CHECK_NOTHROW(LanguageModel::load(files, options));
  options.overrides = {"rope_teta=5000"};
  CHECK(contains(error_of(files, options, ErrorKind::kUsage), "did you mean rope_theta?"));
  options.overrides = {"rope_theta"};
  CHECK(contains(error_of(files, options, ErrorKind::kUsage), "expected key=value"));
  options.overrides = {"hidden_size=1000"};
  const std::string message = error_of(files, options, ErrorKind::kUsage);
  CHECK(contains(message, "random-spm.gguf"));
  CHECK(contains(message, "--set hidden_size=1000: the tensors do not fit"));
  CHECK(contains(message, "expected ["));
  options.overrides = {"hidden_size=big"};
  CHECK(contains(error_of(files, options, ErrorKind::kUsage), "the model has the number"));

  io::ModelFiles broken = builtin();  // of itself
  broken.config["hidden_size"] = 1000;
  options.overrides = {"rope_theta=5000"};
  CHECK(contains(error_of(broken, options, ErrorKind::kMalformed), "expected ["));
}

TEST_CASE("contexts beyond the original length rotate otherwise, and share no prompt cache") {
  const models::ModelDef& def = models::find_model_def({{"model_type", "phi3"}});
  io::ModelFiles files;
  files.path = "phi3";
  files.config = io::classic_config(def.tiny_configs()[1], false);  // original length 16 of 64
  const auto parameters = nn::Parameters::random(1);
  def.make(files.config, parameters);
  files.tensors = parameters.state_dict();
  const auto load = [&](int64_t context) {
    LoadOptions options;
    options.context = context;
    return LanguageModel::load(files, options);
  };
  const auto near = load(8), full = load(16), far = load(17);
  CHECK(full->fingerprint() == near->fingerprint());
  CHECK(far->fingerprint() != near->fingerprint());
  const auto logits = [](LanguageModel& model) {
    const Array array = model.logits(prompt(6, model.vocab()));
    const auto span = array.as<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  CHECK(logits(*full) == logits(*near));
  CHECK(logits(*far) != logits(*near));
}

TEST_CASE("a context beyond the model is refused with the numbers") {
  LoadOptions options;
  options.context = 1 << 20;
  CHECK(contains(error_of(builtin(), options, ErrorKind::kUsage), "--ctx 1048576 is more than"));
}

TEST_CASE("a KV cache beyond the memory there is is refused before it is allocated") {
  const io::ModelFiles files = builtin();
  LoadOptions options;
  options.overrides = {"max_position_embeddings=16777216"};
  options.context = 1 << 24;
  options.memory_limit = 1 << 20;
  const std::string message = error_of(files, options, ErrorKind::kResource);
  CHECK(contains(message, "available are 1.0 MiB; use a smaller --ctx"));
}

// Logits of a prompt read at once and of two tokens after it.
std::vector<float> some_logits(const io::ModelFiles& files, LoadOptions options) {
  options.kv_type = DType::kF32;
  const auto model = LanguageModel::load(files, options);
  const std::vector<int32_t> ids = prompt(12, model->vocab());
  std::vector<float> logits;
  for (const auto& part :
       {std::span(ids).first(10), std::span(ids).subspan(10, 1), std::span(ids).subspan(11, 1)}) {
    const auto last = model->feed(part);
    logits.insert(logits.end(), last.begin(), last.end());
  }
  return logits;
}

TEST_CASE("repacked weights give the logits of those in the file") {
  const io::ModelFiles files = builtin();
  LoadOptions as_stored;
  as_stored.repack = false;
  const auto want = some_logits(files, as_stored), got = some_logits(files, {});
  REQUIRE(want.size() == got.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(got[i] - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  CHECK(std::sqrt(difference / norm) < 1e-2);  // steps of the activations' int8, as above
  // The files' own arrays are as they were.
  for (const auto& [name, array] : files.tensors) CHECK(array.layout() == Layout::kRows);
}

TEST_CASE("weights in memory, as packed directories have them, go when they are repacked") {
  io::ModelFiles files = builtin();
  const std::string want = LanguageModel::load(files, {})->fingerprint();
  const auto mapped_logits = some_logits(files, {});
  std::vector<std::weak_ptr<void>> owners;
  for (auto& [name, array] : files.tensors) {
    if (!name.ends_with("proj.weight")) continue;
    auto bytes =
        std::make_shared<std::vector<std::byte>>(array.data(), array.data() + array.bytes());
    auto buffer = std::make_shared<Buffer>();
    buffer->data = bytes->data();
    buffer->bytes = bytes->size();
    buffer->owner = bytes;
    owners.emplace_back(bytes);
    array = Array::view(buffer, 0, array.dtype(), array.shape());
  }
  REQUIRE(!owners.empty());
  const auto model = LanguageModel::load(files, {});
  CHECK(some_logits(files, {}) == mapped_logits);
  files.tensors.clear();
  const auto are_gone = [&] {
    return std::all_of(owners.begin(), owners.end(),
                       [](const std::weak_ptr<void>& owner) { return owner.expired(); });
  };
  CHECK(!are_gone());
  model->repack();
  CHECK(are_gone());
  CHECK(model->fingerprint() == want);
}

TEST_CASE("passes before and after repacking give the same bits") {
  // The last are float16 numbers that fit into bfloat16.
  const std::vector<std::vector<DType>> kConversions = {
      {DType::kF32}, {DType::kF16}, {DType::kBF16}, {DType::kQ8_0}, {DType::kBF16, DType::kF16}};
  for (const std::vector<DType>& conversions : kConversions) {
    io::ModelFiles files = conversions.back() == DType::kQ8_0 ? quantized() : builtin();
    for (const DType to : conversions) files = converted(std::move(files), to);
    const DType dtype = conversions.back();
    for (const int64_t count : {1, 2, 9, 30}) {
      INFO(name(dtype) << ", " << count << " tokens");
      const auto model = LanguageModel::load(files, {}), ahead = LanguageModel::load(files, {});
      const runtime::MemoryPlan planned = model->memory();
      REQUIRE(planned.packed_bytes > 0);
      const std::vector<int32_t> ids = prompt(count, model->vocab());
      const auto read = [&](LanguageModel& reader) {
        reader.rewind(0);
        const auto logits = reader.feed(ids);
        return std::vector<float>(logits.begin(), logits.end());
      };
      const auto first = read(*model);
      CHECK(read(*model) == first);
      ahead->repack_ahead();
      ahead->repack_ahead();
      CHECK(read(*ahead) == first);
      const uint64_t packed = ahead->memory().packed_bytes, rows = planned.read_bytes;
      const bool shorter = conversions.front() == DType::kBF16 && kernels::fast_short_panels();
      CHECK((shorter ? packed < rows - rows / 16 : packed >= rows));
      CHECK(packed == planned.packed_bytes);
      LanguageModel::load(files, {})->repack_ahead();  // is not needed in the end
    }
  }
}

TEST_CASE("what loading repacks is told, and weights that do not fit stay as they are") {
  const io::ModelFiles files = builtin();
  LoadOptions options;
  const auto repacked = LanguageModel::load(files, options);
  const runtime::MemoryPlan plan = repacked->memory();
  CHECK(plan.notice.empty());
  CHECK(plan.read_bytes > 0);
  CHECK(plan.packed_bytes >= plan.read_bytes);
  CHECK(plan.packed_bytes < plan.read_bytes + (1 << 16));

  options.memory_limit = plan.kv_bytes + plan.packed_bytes - 1;
  const auto stored = LanguageModel::load(files, options);
  CHECK(stored->memory().packed_bytes == 0);
  CHECK(contains(stored->memory().notice, "repacked they need"));
  options.memory_limit += 1;
  CHECK(LanguageModel::load(files, options)->memory().packed_bytes == plan.packed_bytes);
}

TEST_CASE("where panels turn out longer than there is memory for, the last weights stay rows") {
  io::ModelFiles files = converted(builtin(), DType::kBF16);
  const auto numbers = files.tensors.at("model.layers.0.mlp.up_proj.weight").as_mutable<bf16>();
  for (size_t i = numbers.size() / 2; i < numbers.size(); i += 3) numbers[i] = bf16{0x3000};

  const auto read = [](LanguageModel& model) {
    const auto logits = model.feed(prompt(9, model.vocab()));
    return std::vector<float>(logits.begin(), logits.end());
  };
  LoadOptions options;
  const auto roomy = LanguageModel::load(files, options);
  const runtime::MemoryPlan plan = roomy->memory();
  options.memory_limit = plan.kv_bytes + plan.packed_bytes;
  const auto narrow = LanguageModel::load(files, options);
  CHECK(narrow->memory().notice.empty());
  roomy->repack();
  narrow->repack();
  CHECK(read(*roomy) == read(*narrow));
  if (!kernels::fast_short_panels()) return;
  CHECK(roomy->memory().packed_bytes > plan.packed_bytes);
  CHECK(narrow->memory().packed_bytes <= plan.packed_bytes);
  CHECK(narrow->memory().packed_bytes < roomy->memory().packed_bytes);
}

TEST_CASE("a pass that is stopped does not wait for the end of the repacking ahead") {
  if (!kernels::fast_short_panels()) {  // only then it can be told how far it came
    return testing::skip("this CPU keeps bfloat16 weights as they are");
  }
  io::ModelFiles files = converted(builtin(), DType::kBF16);
  constexpr int64_t kLayers = 64;
  const NamedArrays own = files.tensors;
  for (const auto& [name, array] : own) {
    constexpr std::string_view kFirst = "model.layers.0.";
    if (!name.starts_with(kFirst)) continue;
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      files.tensors[str("model.layers.", layer, ".", name.substr(kFirst.size()))] = array;
    }
  }
  files.config["num_hidden_layers"] = kLayers;
  // Panels of the last layer turn out longer than their first promises.
  Array& last = files.tensors.at(str("model.layers.", kLayers - 1, ".mlp.up_proj.weight"));
  const Array shared = last;
  last = Array::zeros(DType::kBF16, shared.shape());
  const auto numbers = last.as_mutable<bf16>();
  std::copy(shared.as<bf16>().begin(), shared.as<bf16>().end(), numbers.begin());
  for (size_t i = numbers.size() / 2; i < numbers.size(); i += 3) numbers[i] = bf16{0x3000};

  bool stopped_early = false;
  // The thread may have come to the end while this one was held up.
  for (int attempt = 0; attempt < 10 && !stopped_early; ++attempt) {
    const auto model = LanguageModel::load(files, {});
    const uint64_t promised = model->memory().packed_bytes;
    const std::atomic<bool> stop = true;
    model->repack_ahead();
    CHECK(model->feed(prompt(9, model->vocab()), &stop).empty());
    stopped_early = model->memory().packed_bytes == promised;
    model->repack();
    CHECK(model->memory().packed_bytes > promised);
  }
  CHECK(stopped_early);
}

TEST_CASE("what does not belong to the architecture, or is damaged, is refused before inference") {
  io::ModelFiles files = builtin();
  files.tensors["model.layers.0.surprise.weight"] = Array::zeros(DType::kF32, {4});
  CHECK(contains(error_of(files, {}, ErrorKind::kUnsupported), "surprise"));

  files = builtin();
  files.tensors.erase("model.norm.weight");
  CHECK(contains(error_of(files, {}, ErrorKind::kMalformed), "'model.norm.weight' is missing"));

  files = builtin();
  Array norm = Array::zeros(DType::kF32, files.tensors.at("model.norm.weight").shape());
  norm.as_mutable<float>()[3] = NAN;
  files.tensors["model.norm.weight"] = norm;
  CHECK(contains(error_of(files, {}, ErrorKind::kMalformed),
                 "is damaged (lumen-run --allow-nonfinite opens it"));
  files = builtin();
  const Array& stored = files.tensors.at("model.layers.0.mlp.up_proj.weight");
  Array up = Array::zeros(DType::kF32, stored.shape());
  up.as_mutable<float>()[stored.shape()[1] + 1] = INFINITY;
  files.tensors["model.layers.0.mlp.up_proj.weight"] = up;
  LoadOptions options;
  for (const bool repack : {true, false}) {
    options.repack = repack;
    CHECK(contains(error_of(files, options, ErrorKind::kMalformed),
                   "'model.layers.0.mlp.up_proj.weight' has a NaN or infinite value in row 1"));
  }
  options.allow_nonfinite = true;
  CHECK_NOTHROW(LanguageModel::load(files, options));
}
