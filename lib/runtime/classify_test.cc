// lumen-run with classifiers, as their users meet it.
#include "lib/runtime/classify.h"

#include <png.h>

#include <array>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/write_safetensors.h"
#include "lib/runtime/tool/tool_process.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using testing::run_tool_process;

// A square PNG of one grey level.
std::string grey_picture(const std::string& directory, const std::string& name, uint8_t level,
                         int64_t size) {
  std::vector<uint8_t> pixels(static_cast<size_t>(size * size), level);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = static_cast<png_uint_32>(size);
  image.format = PNG_FORMAT_GRAY;
  const std::string path = directory + "/" + name;
  REQUIRE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0);
  return path;
}

// An MLP without hidden layers that tells dark from light: its logits are ∓ the sum of the pixels,
// which are (level / 255 − 0.5) / 0.25.
struct DarkOrLight {
  DarkOrLight() : directory(lumen::testing::temporary_directory()) {
    config = {{"model_type", "mlp"},
              {"input_shape", {1, 4, 4}},
              {"num_labels", 2},
              {"id2label", {{"0", "dark"}, {"1", "light"}}}};
    write();
    std::vector<float> rows(32, -0.1f);
    std::fill(rows.begin() + 16, rows.end(), 0.1f);
    write_weights({{"fc1.weight", Array::from<float>(rows, {2, 16})},
                   {"fc1.bias", Array::zeros(DType::kF32, {2})}});
    io::write_file_atomically(directory + "/preprocessor_config.json",
                              R"({"image_mean": [0.5], "image_std": [0.25]})");
  }
  void write() const { io::write_file_atomically(directory + "/config.json", config.dump()); }
  void write_weights(const NamedArrays& weights) const {
    io::write_safetensors(directory + "/model.safetensors", weights);
  }

  std::string directory;
  io::Json config;
};

TEST_CASE("a classifier tells the class of pictures of any size") {
  const DarkOrLight model;
  const std::string black = grey_picture(model.directory, "black.png", 0, 9);
  const std::string light = grey_picture(model.directory, "light.png", 153, 4);
  const auto text = run_tool_process("lumen-run", {model.directory, black, light});
  CAPTURE(text.err);
  REQUIRE(text.exit_code == 0);
  // (0.6 − 0.5) / 0.25 = 0.4; logits ∓16 · 0.04: 1 / (1 + exp(−1.28)) = 78.2 %.
  CHECK(text.out == black + ": dark (99.8 %)\n" + light + ": light (78.2 %)\n");

  const auto printed = run_tool_process("lumen-run", {model.directory, light, "--json"});
  const io::Json json = io::parse_json(printed.out, "");
  REQUIRE(json["images"].size() == 1);
  CHECK(json["images"][0]["class"] == "light");
  CHECK(json["images"][0]["probabilities"]["light"].get<double>() == Approx(0.78245).margin(1e-4));
  CHECK(json["images"][0]["probabilities"]["dark"].get<double>() == Approx(0.21755).margin(1e-4));
}

TEST_CASE("rows of a table get the class or the number that its columns give") {
  DarkOrLight model;
  const std::string& place = model.directory;
  const std::string table = place + "/t.csv";
  model.config["input_shape"] = {3};
  model.write();
  io::write_file_atomically(place + "/preprocessor_config.json",
                            R"({"image_mean": [2, 0, 0], "image_std": [4, 1, 1],)"
                            R"( "feature_names": ["size", "hue=red=ish", "hue=blue"]})");
  // Columns of the file are found by name; logits ∓ ((size − 2) / 4 + red − blue).
  const std::vector<float> rows = {-1, -1, 1, 1, 1, -1};
  model.write_weights({{"fc1.weight", Array::from<float>(rows, {2, 3})},
                       {"fc1.bias", Array::zeros(DType::kF32, {2})}});
  io::write_file_atomically(table, "hue,extra,size\nblue,x,-2\n\nred=ish,y, 6\n");
  const auto text = run_tool_process("lumen-run", {place, table});
  CAPTURE(text.err);
  CHECK(text.out == table + ":2: dark (98.2 %)\n" + table + ":4: light (98.2 %)\n");
  const io::Json json =
      io::parse_json(run_tool_process("lumen-run", {place, table, "--json"}).out, "");
  REQUIRE(json["rows"].size() == 2);
  CHECK(json["rows"][1]["line"] == 4);
  CHECK(json["rows"][1]["class"] == "light");

  auto refusal_of = [&](const std::string& content, int exit_code) {
    io::write_file_atomically(table, content);
    const auto outcome = run_tool_process("lumen-run", {place, table});
    CHECK(outcome.exit_code == exit_code);
    return outcome.err;
  };
  CHECK(contains(refusal_of("hue\nblue\n", 78), "no column for the feature 'size'"));
  CHECK(contains(refusal_of("size,hue\n1,green\n", 65),
                 "line 2, column 3: found 'green', expected what training had in 'hue': blue, "
                 "red=ish"));
  CHECK(
      contains(refusal_of("size,hue\nNaN,blue\n", 65), "column 1: found 'NaN', expected a number"));
  CHECK(contains(refusal_of("size,hue\n1\n", 65), "found 1 field, expected 2"));

  // Columns without names are found by number, and the first row counts.
  io::write_file_atomically(place + "/preprocessor_config.json",
                            R"({"image_mean": [2, 0, 0], "image_std": [4, 1, 1], "header": false,)"
                            R"( "feature_names": ["3", "1=red", "1=blue"]})");
  io::write_file_atomically(table, "blue;x;-2\nred;y;6\n");
  CHECK(run_tool_process("lumen-run", {place, table}).out ==
        table + ":1: dark (98.2 %)\n" + table + ":2: light (98.2 %)\n");
  CHECK(contains(refusal_of("\n", 65), "t.csv: has no rows"));
  CHECK(contains(refusal_of("blue;x\n", 78), "line 1: there is no column for the feature '3'"));
  io::write_file_atomically(place + "/preprocessor_config.json",
                            R"({"image_mean": [2, 0, 0], "image_std": [4, 1, 1],)"
                            R"( "feature_names": ["size", "hue=red=ish", "hue=blue"]})");

  model.config["num_labels"] = 1;
  model.config.erase("id2label");
  model.write();
  model.write_weights({{"fc1.weight", Array::from<float>(std::vector<float>{2, 0, 1}, {1, 3})},
                       {"fc1.bias", Array::zeros(DType::kF32, {1})}});
  io::write_file_atomically(table, "size,hue\n4,blue\n");
  CHECK(run_tool_process("lumen-run", {place, table}).out == table + ":2: 2\n");
}

TEST_CASE("what cannot be classified is said in one sentence") {
  DarkOrLight model;
  const std::string picture = grey_picture(model.directory, "a.png", 7, 4);
  auto refusal_of = [](const std::vector<std::string>& arguments, int exit_code) {
    const auto outcome = run_tool_process("lumen-run", arguments);
    CHECK(outcome.exit_code == exit_code);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  const std::string& place = model.directory;
  CHECK(contains(refusal_of({place}, 2), "name the PNG or JPEG files"));
  CHECK(contains(refusal_of({place, picture, "-p", "a"}, 2), "pictures and a prompt do not go"));
  CHECK(contains(refusal_of({lumen::testing::source_path("testdata"), picture}, 2),
                 "is no classifier"));
  CHECK(contains(refusal_of({place + "/none", picture}, 66), "none: no such file or directory"));
  CHECK(contains(refusal_of({place, place + "/none.png"}, 66), "none.png"));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--inspect", place}, {place, place + "/x.gguf"}}) {
    const auto outcome = run_tool_process("lumen-convert", arguments);
    CHECK(outcome.exit_code == 69);
    CHECK(contains(outcome.err, "is a classifier, not a language model"));
  }
  CHECK(run_tool_process("lumen-bench", {"llm", place}).exit_code == 69);
  CHECK(contains(refusal_of({place, place + "/config.json"}, 65),
                 "is neither a PNG nor a JPEG file"));

  io::write_file_atomically(place + "/preprocessor_config.json", R"({"image_mean": [0.5, 1]})");
  CHECK(contains(refusal_of({place, picture}, 65), "'image_mean': expected a list of 1 numbers"));
  model.write_weights({{"fc1.weight", Array::zeros(DType::kF32, {2, 16})},
                       {"fc1.bias", Array::zeros(DType::kF32, {2})},
                       {"fc2.bias", Array::zeros(DType::kF32, {2})}});
  CHECK(contains(refusal_of({place, picture}, 69), "'fc2.bias' is not part of this architecture"));
  model.config["input_shape"] = {2, 8};
  model.write();
  CHECK(contains(refusal_of({place, picture}, 69), "takes [2, 8] numbers; only square pictures"));
  model.config["input_shape"] = {1, 4, 4};
  model.config.erase("id2label");
  model.write();
  CHECK(contains(refusal_of({place, picture}, 65), "'id2label': class 0 has no name"));
}

}  // namespace
}  // namespace lumen::runtime
