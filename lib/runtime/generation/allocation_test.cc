// Decoding a token allocates nothing: neither by malloc or new, nor by mmap.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "lib/base/strings.h"
#include "lib/base/testing.h"
#include "lib/io/write_gguf.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/generation/session.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
std::atomic<bool> g_counting{false};
std::atomic<int> g_allocations{0};
void count_allocation() {
  if (g_counting.load(std::memory_order_relaxed)) ++g_allocations;
}
}  // namespace

// Definitions in the program take the place of the C library's; `new` ends up here too.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  count_allocation();
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  count_allocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  count_allocation();
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  count_allocation();
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}

namespace lumen::runtime {
namespace {

// Allocations during 32 tokens of an answer that is longer.
int allocations_while_decoding(const RunOptions& options) {
  Session session = load_session(options);
  Sampler sampler = make_sampler(sampling_settings(options.sampling, session), session);
  Generator generator = make_generator(options, session);
  GenerationOptions generation{64, options.stop, {}, session.constraint};
  const auto prompt = session.format.encode("hello");
  int pieces = 0;
  auto sink = [&](std::string_view) {
    ++pieces;
    g_counting = pieces >= 8 && pieces < 40;
  };
  // The first drafts compile their plans: they are tried in a first answer.
  session.model->repack();
  session.model->prepare(DraftLength::kPasses);
  generator.generate(prompt, sampler, generation, false, [](std::string_view) {});
  g_allocations = 0;
  generator.generate(prompt, sampler, generation, false, sink);
  g_counting = false;
  REQUIRE(pieces >= 40);
  return g_allocations;
}

TEST_CASE("decoding a token allocates nothing") {
  RunOptions options;
  options.model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  options.sampling.seed = 1;
  REQUIRE(allocations_while_decoding(options) == 0);
  options.sampling.temperature = 0;
  REQUIRE(allocations_while_decoding(options) == 0);
  options.sampling.temperature = 1.5;
  options.sampling.top_k = 0;
  options.sampling.repeat_penalty = 1.3;
  options.stop = {"never said", "neither"};
  options.kv = "q8_0";
  REQUIRE(allocations_while_decoding(options) == 0);
  options.sampling.presence_penalty = 0.1;
  options.sampling.frequency_penalty = 0.1;
  options.sampling.dry_multiplier = 0.8;
  options.sampling.typical_p = 0.9;
  options.sampling.top_n_sigma = 3;
  options.sampling.xtc_probability = 0.5;
  options.sampling.logit_bias = {{"5", 1}, {"6", -1}};
  options.sampling.repeat_last_n = 200;
  options.sampling.dynatemp_range = 0.5;
  REQUIRE(allocations_while_decoding(options) == 0);
  options.sampling.samplers = {SamplingStep::kTemperature, SamplingStep::kTopP,
                               SamplingStep::kPenalties, SamplingStep::kTopK, SamplingStep::kDry};
  REQUIRE(allocations_while_decoding(options) == 0);
  options.sampling.mirostat = 1;
  REQUIRE(allocations_while_decoding(options) == 0);
  options.sampling.mirostat = 2;
  REQUIRE(allocations_while_decoding(options) == 0);
  options.sampling.temperature = 0;
  options.sampling.dry_penalty_last_n = 10;  // what is kept of the text is moved now and then
  REQUIRE(allocations_while_decoding(options) == 0);
}

// The model `path` with four copies of each feed-forward layer as experts, of which two are used.
std::string with_experts(const std::string& path) {
  const auto file = io::read_gguf(path);
  io::GgufWriter writer;
  for (size_t i = 0; i < file->metadata.size(); ++i) {
    if (file->metadata[i].key() != "general.alignment") writer.copy(file->metadata[i]);
  }
  writer.set("llama.expert_count", uint32_t{4});
  writer.set("llama.expert_used_count", uint32_t{2});
  for (const io::GgufTensor& tensor : file->tensors) {
    const Array array = file->array(tensor);
    const std::string_view name = tensor.name;
    const size_t at = name.find(".ffn_"), end = name.find(".weight");
    if (at == name.npos || name.find("ffn_norm") != name.npos) {
      writer.add(tensor.name, array);
      continue;
    }
    Array all = Array::zeros(array.dtype(), {4, array.shape()[0], array.shape()[1]});
    for (size_t e = 0; e < 4; ++e) {
      std::memcpy(all.mutable_data() + e * array.bytes(), array.data(), array.bytes());
    }
    writer.add(str(name.substr(0, end), "_exps.weight"), all);
    if (name.find("ffn_gate") == name.npos) continue;
    std::vector<float> router(4 * 64);
    for (size_t i = 0; i < router.size(); ++i) router[i] = static_cast<float>(i * i % 7);
    writer.add(str(name.substr(0, at), ".ffn_gate_inp.weight"),
               Array::from<float>(router, {4, 64}));
  }
  const std::string copy = lumen::testing::temporary_directory() + "/experts.gguf";
  writer.write(copy);
  return copy;
}

// While decoding with the first small config of a family.
int allocations_of(const char* model_type) {
  const models::ModelDef& def = models::find_model_def({{"model_type", model_type}});
  io::Json config = def.tiny_configs()[0];
  config["max_position_embeddings"] = 256;
  RunOptions options;
  options.model = model_directory(def, config, text::TokenizerKind::kByteLevelBpe);
  options.sampling.seed = 1;
  return allocations_while_decoding(options);
}

TEST_CASE("decoding a token with sinks and biased experts allocates nothing") {
  REQUIRE(allocations_of("gpt_oss") == 0);
}

TEST_CASE("decoding a token with states in place of keys and values allocates nothing") {
  REQUIRE(allocations_of("qwen3_5_text") == 0);
  REQUIRE(allocations_of("qwen3_next") == 0);
  REQUIRE(allocations_of("lfm2") == 0);
  REQUIRE(allocations_of("lfm2_moe") == 0);
  REQUIRE(allocations_of("granitemoehybrid") == 0);
  REQUIRE(allocations_of("nemotron_h") == 0);
  REQUIRE(allocations_of("falcon_h1") == 0);
  REQUIRE(allocations_of("mamba2") == 0);
  REQUIRE(allocations_of("olmo_hybrid") == 0);
  REQUIRE(allocations_of("kimi_linear") == 0);
  REQUIRE(allocations_of("jamba") == 0);
}

TEST_CASE("decoding a token with embeddings per layer and shared keys allocates nothing") {
  REQUIRE(allocations_of("gemma4_text") == 0);
  REQUIRE(allocations_of("gemma3n_text") == 0);
}

TEST_CASE("decoding a token with latent attention and experts of groups allocates nothing") {
  REQUIRE(allocations_of("deepseek_v3") == 0);
  REQUIRE(allocations_of("ernie4_5_moe") == 0);
  REQUIRE(allocations_of("glm4_moe") == 0);
  REQUIRE(allocations_of("minimax_m2") == 0);
  REQUIRE(allocations_of("dots1") == 0);
  REQUIRE(allocations_of("bailing_moe_v2") == 0);
  REQUIRE(allocations_of("hunyuan_v1_moe") == 0);
  REQUIRE(allocations_of("exaone_moe") == 0);
}

TEST_CASE("decoding a token with experts allocates nothing, and equal ones answer as one does") {
  RunOptions options;
  options.model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  const auto logits = [&] {
    Session session = load_session(options);
    const Array array = session.model->logits(std::vector<int32_t>{1, 70, 80, 300, 301});
    const auto numbers = array.as<float>();
    return std::vector<float>(numbers.begin(), numbers.end());
  };
  const std::vector<float> one = logits();
  options.model = with_experts(*options.model);
  const std::vector<float> several = logits();
  REQUIRE(several.size() == one.size());
  for (size_t i = 0; i < one.size(); ++i) CHECK(several[i] == Approx(one[i]).margin(1e-3));
  options.sampling.seed = 1;
  REQUIRE(allocations_while_decoding(options) == 0);
}

TEST_CASE("decoding a token under a grammar allocates nothing where it has been before") {
  const std::string path = lumen::testing::temporary_directory() + "/words.gbnf";
  std::ofstream(path) << "root ::= word (\" \" word)*\nword ::= [a-zA-Z]{1,3} | \"(\" word \")\"\n";
  RunOptions options;
  options.model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  options.grammar = path;
  options.sampling.temperature = 0;
  REQUIRE(allocations_while_decoding(options) == 0);
}

TEST_CASE("the counter counts") {
  g_allocations = 0;
  g_counting = true;
  auto* number = new std::string(100, 'x');
  g_counting = false;
  delete number;
  REQUIRE(g_allocations == 2);
}

}  // namespace
}  // namespace lumen::runtime

#endif
