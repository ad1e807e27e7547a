// lumen-convert --imatrix: matrices rounded with what their columns count.
#include <cmath>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_files.h"
#include "lib/io/write_gguf.h"
#include "lib/nn/parameters.h"
#include "lib/runtime/conversion/convert_testing.h"
#include "lib/runtime/tool/tool_process.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;

// An importance matrix with these means for the 64 columns of blk.0.attn_q.weight, and for `more`.
void write_matrix(const std::string& path, const std::vector<float>& means,
                  const std::string& more = "") {
  io::GgufWriter writer;
  writer.set("general.type", std::string("imatrix"));
  writer.set("imatrix.chunk_count", uint32_t{3});
  writer.set("imatrix.datasets", std::vector<std::string>{"calibration.txt"});
  for (const std::string& name : {std::string("blk.0.attn_q.weight"), more}) {
    if (name.empty()) continue;
    writer.add(name + ".in_sum2",
               Array::from<float>(means, {1, static_cast<int64_t>(means.size())}));
    writer.add(name + ".counts", Array::from<float>(std::vector<float>{1}, {1, 1}));
  }
  writer.write(path);
}

// Σ w (a − b)² of the matrix `name` of two models.
double weighted_error(const std::string& a, const std::string& b, const std::string& name,
                      const std::vector<float>& w) {
  const Array x = nn::float32_copy(io::open_model(a).tensors.at(name));
  const Array y = nn::float32_copy(io::open_model(b).tensors.at(name));
  double error = 0;
  for (size_t i = 0; i < static_cast<size_t>(x.elements()); ++i) {
    error += w[i % w.size()] * std::pow(double{x.as<float>()[i]} - y.as<float>()[i], 2);
  }
  return error;
}

TEST_CASE("with an importance matrix the columns that count most are rounded with less error") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string matrix = place + "/m.imatrix";
  const std::string model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  const auto run = [&](const std::string& output, const testing::Arguments& more) {
    testing::Arguments arguments = {model, place + output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::run_tool_process("lumen-convert", arguments);
  };
  std::vector<float> means(64);
  for (size_t i = 0; i < means.size(); ++i) means[i] = std::exp(static_cast<float>(i % 7));
  write_matrix(matrix, means, "token_embd.weight");

  REQUIRE(run("/plain.gguf", {"--type", "q4_0"}).exit_code == 0);
  const auto outcome = run("/best.gguf", {"--type", "q4_0", "--imatrix", matrix, "-t", "2"});
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "m.imatrix has nothing on 'blk.0.attn_k.weight' and 12 more "));
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const double plain = weighted_error(model, place + "/plain.gguf", q, means);
  const double best = weighted_error(model, place + "/best.gguf", q, means);
  CHECK(best < 0.8 * plain);
  // Matrices of which it says nothing are as without it; threads change nothing.
  const io::ModelFiles without = io::open_model(place + "/plain.gguf");
  const io::ModelFiles with = io::open_model(place + "/best.gguf");
  for (const auto& [name, array] : without.tensors) {
    const bool same =
        std::equal(array.data(), array.data() + array.bytes(), with.tensors.at(name).data());
    CHECK(same == (name != q && name != "model.embed_tokens.weight"));
  }
  REQUIRE(run("/one.gguf", {"--type", "q4_0", "--imatrix", matrix, "-t", "1"}).exit_code == 0);
  CHECK(weighted_error(place + "/one.gguf", place + "/best.gguf", q, means) == 0);
  const io::GgufMetadata& metadata = with.gguf->metadata;
  CHECK(metadata.get_string("quantize.imatrix.file") == "m.imatrix");
  CHECK(metadata.get_string("quantize.imatrix.dataset") == "calibration.txt");
  CHECK(metadata.get_int("quantize.imatrix.entries_count", 0, 99) == 2);
  CHECK(metadata.get_int("quantize.imatrix.chunks_count", 0, 99) == 3);
  const auto shown = testing::run_tool_process("lumen-convert", {"--inspect", matrix});
  CHECK(contains(shown.out, "importance matrix, GGUF"));
  CHECK(contains(shown.out, "blk.0.attn_q.weight.in_sum2  f32 [1,64]"));
}

TEST_CASE("each expert is rounded with what its own columns count") {
  constexpr int64_t kExperts = 3, kColumns = 32;
  const models::ModelDef& def = models::find_model_def({{"model_type", "mixtral"}});
  const std::string model =
      model_directory(def, def.tiny_configs().front(), text::TokenizerKind::kByteLevelBpe);
  const std::string place = lumen::testing::temporary_directory(), matrix = place + "/m.imatrix";
  // Of expert e the columns e, e + 3, e + 6 … count; the last one was never chosen.
  std::vector<float> sums(kExperts * kColumns), counts = {2, 4, 0};
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t expert = i / kColumns, column = i % kColumns;
    sums[i] = counts[expert] * (column % kExperts == expert ? 100.0f : 1.0f);
  }
  io::GgufWriter writer;
  writer.set("general.type", std::string("imatrix"));
  writer.set("imatrix.chunk_count", uint32_t{1});
  writer.set("imatrix.datasets", std::vector<std::string>{"calibration.txt"});
  const std::string name = "blk.0.ffn_gate_exps.weight";
  writer.add(name + ".in_sum2", Array::from<float>(sums, {kExperts, kColumns}));
  writer.add(name + ".counts", Array::from<float>(counts, {kExperts, 1}));
  writer.write(matrix);
  const std::string plain = place + "/plain.gguf", best = place + "/best.gguf";
  const auto run = [&](const std::string& output, const testing::Arguments& more) {
    testing::Arguments arguments = {model, output, "--type", "q4_0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing::run_tool_process("lumen-convert", arguments).exit_code;
  };
  REQUIRE(run(plain, {}) == 0);
  REQUIRE(run(best, {"--imatrix", matrix}) == 0);
  for (size_t e = 0; e < kExperts; ++e) {
    INFO("expert " << e);
    std::vector<float> means(kColumns);
    for (size_t i = 0; i < means.size(); ++i) means[i] = i % kExperts == e ? 100.0f : 1.0f;
    const std::string expert = str("model.layers.0.block_sparse_moe.experts.", e, ".w1.weight");
    const double before = weighted_error(model, plain, expert, means);
    const double after = weighted_error(model, best, expert, means);
    if (counts[e] > 0) {
      CHECK(after < 0.8 * before);
    } else {
      CHECK(weighted_error(plain, best, expert, means) == 0);
    }
  }
}

TEST_CASE("an importance matrix in the older format is shown") {
  std::string bytes;
  const auto append = [&](int32_t value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::string name = "blk.0.attn_q.weight", text = "calibration.txt";
  for (const int32_t value : {1, static_cast<int32_t>(name.size())}) append(value);
  bytes += name;
  for (const int32_t value : {2, 3, 0, 0, 0, 5, static_cast<int32_t>(text.size())}) append(value);
  bytes += text;
  const std::string path = lumen::testing::temporary_directory() + "/imatrix.dat";
  io::write_file_atomically(path, bytes);
  const auto shown = testing::run_tool_process("lumen-convert", {"--inspect", path});
  CAPTURE(shown.err);
  CHECK(shown.exit_code == 0);
  CHECK(contains(shown.out, ": importance matrix, 70 bytes"));
  CHECK(contains(shown.out, "chunks: 5"));
  CHECK(contains(shown.out, text));
  CHECK(contains(shown.out, name + "  f32 [3]"));
  bytes.pop_back();
  io::write_file_atomically(path, bytes);
  const auto cut = testing::run_tool_process("lumen-convert", {"--inspect", path});
  testing::require_error(cut, 65, "lumen-convert");
  CHECK(contains(cut.err, "imatrix.dat"));
}

TEST_CASE("an importance matrix of another model, or where it has no effect, is refused") {
  const std::string place = lumen::testing::temporary_directory();
  const std::string matrix = place + "/m.imatrix", output = place + "/a.gguf";
  const std::string model = lumen::testing::source_path("testdata/models/random-spm.gguf");
  const auto refused = [&](int exit_code, const testing::Arguments& more,
                           const std::string& to = "/a.gguf") {
    testing::Arguments arguments = {model, place + to, "--imatrix", matrix};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = testing::run_tool_process("lumen-convert", arguments);
    CHECK(outcome.exit_code == exit_code);
    CHECK_FALSE(io::is_regular_file(output));
    return outcome.err;
  };
  CHECK(contains(refused(66, {"--type", "q4_0"}), "m.imatrix"));
  write_matrix(matrix, std::vector<float>(32, 1));
  CHECK(
      contains(refused(78, {"--type", "q4_0"}),
               "m.imatrix: 'blk.0.attn_q.weight' has 32 columns, the model's 64: is it of this "));
  CHECK(contains(refused(2, {}), "--imatrix has no effect without --type"));
  CHECK(contains(refused(2, {"--type", "q8_0"}), "no effect with --type q8_0"));
  CHECK(contains(refused(2, {}, "/directory"), "--imatrix is for GGUF files"));
  io::GgufWriter other;
  other.set("general.type", std::string("imatrix"));
  other.add("blk.9.attn_q.weight.in_sum2", Array::from<float>(std::vector<float>{1, 2}, {1, 2}));
  other.add("blk.9.attn_q.weight.counts", Array::from<float>(std::vector<float>{1}, {1, 1}));
  other.write(matrix);
  CHECK(contains(refused(78, {"--type", "q4_0"}), "m.imatrix: has none of the 15 matrices that"));
}

}  // namespace
}  // namespace lumen::runtime
