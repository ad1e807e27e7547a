#include "lib/runtime/training/metrics.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/training/event_file.h"
#include "lib/runtime/training/loss_curve.h"
#include "lib/runtime/training/progress.h"

namespace lumen::runtime {
namespace {

using io::Json;
using lumen::testing::contains;

template <typename T>
T raw(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The payloads of a TFRecord file, their checksums checked.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = static_cast<size_t>(raw<uint64_t>(bytes, at));
    const std::string payload = bytes.substr(at + 12, length);
    REQUIRE(tfrecord(payload) == bytes.substr(at, length + 16));
    out.push_back(payload);
    at += length + 16;
  }
  return out;
}

TEST_CASE("CRC-32C has the values of RFC 3720") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43);
  CHECK(crc32c("123456789") == 0xE3069283);
}

TEST_CASE("an event is the protocol buffer that TensorBoard reads") {
  const std::vector<std::pair<std::string, double>> values = {{"loss", 0.5}, {"lr", 2}};
  const std::string record = scalar_event(1.0, 300, values);
  const std::string payload = records(record).at(0);
  const std::string expected(
      "\x09\0\0\0\0\0\0\xf0\x3f"  // wall_time 1.0
      "\x10\xac\x02"              // step 300
      "\x2a\x18"                  // summary, 24 bytes
      "\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"
      "\x0a\x09\x0a\x02lr\x15\0\0\0\x40",
      38);
  CHECK(payload == expected);
  CHECK(contains(records(event_file_header(0)).at(0), "brain.Event:2"));
}

TEST_CASE("lines after the step that a run goes on from are removed, and a line cut short") {
  const std::string path = lumen::testing::temporary_directory() + "/m.jsonl";
  std::ofstream(path) << "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n{\"step\":3}\n{\"st";
  {
    StepLines lines(path, 2);
    CHECK(lines.rows().size() == 2);
    lines.append({{"step", 3}, {"loss", 0.5}});
    lines.sync();
  }
  CHECK(io::read_file(path, 1000) ==
        "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n{\"step\":3,\"loss\":0.5}\n");
  StepLines(path, 0);
  CHECK(io::read_file(path, 1000).empty());
}

TEST_CASE("a new metric gives the CSV a column, and every file has every step once") {
  const RunDirectory directory(lumen::testing::temporary_directory() + "/run", false);
  const LogRecipe log;
  {
    Metrics metrics(directory, log, 0);
    metrics.append({{"step", 1}, {"loss", 2.0}});
    metrics.append({{"step", 2}, {"loss", 1.0}, {"eval_loss", 3.0}});
    metrics.append({{"step", 3}, {"loss", NAN}});
  }
  CHECK(io::read_file(directory.file("metrics.csv"), 1000) ==
        "step,loss,eval_loss\n1,2.0,\n2,1.0,3.0\n3,,\n");
  CHECK(
      contains(io::read_file(directory.file("metrics.jsonl"), 1000), "{\"step\":3,\"loss\":null}"));
  {
    Metrics again(directory, log, 2);
    again.append({{"step", 3}, {"loss", 0.5}});
    again.finish();
  }
  CHECK(io::read_file(directory.file("metrics.csv"), 1000) ==
        "step,loss,eval_loss\n1,2.0,\n2,1.0,3.0\n3,0.5,\n");
  CHECK(records(io::read_file(directory.file("events.out.tfevents.0.lumen"), 10'000)).size() == 4);
  CHECK(contains(io::read_file(directory.file("loss.svg"), 100'000), "eval_loss"));
}

TEST_CASE("the loss curve of any rows is a picture of limited size") {
  CHECK(contains(loss_curve({}), "</svg>"));
  std::vector<Json> rows;
  for (int step = 1; step <= 50'000; ++step) {
    rows.push_back({{"step", step}, {"loss", step % 7 == 0 ? Json() : Json(1000.0 / step)}});
  }
  const std::string curve = loss_curve(rows);
  CHECK(contains(curve, "logarithmic"));
  CHECK(curve.size() < 60'000);
  CHECK_FALSE(contains(curve, "nan"));
  CHECK_FALSE(contains(curve, "inf"));
  CHECK_FALSE(contains(loss_curve({{{"step", 1}, {"loss", 0.0}}}), "nan"));
  rows = {{{"step", 1}, {"loss", 1e-3}}, {{"step", 2}, {"loss", 1e-6}}};
  CHECK(contains(loss_curve(rows), ">2e-05<"));
  CHECK_FALSE(contains(loss_curve(rows), ">0<"));
}

TEST_CASE("metrics are shown with four digits, however small they are") {
  CHECK(metric_text(2.30259) == "2.3026");
  CHECK(metric_text(0) == "0.0000");
  CHECK(metric_text(0.001) == "0.0010");
  CHECK(metric_text(4.1366e-6) == "4.137e-06");
  CHECK(metric_text(NAN) == "NaN");
  CHECK(metric_text(-NAN) == "NaN");
}

TEST_CASE("times are shown as a clock shows them") {
  CHECK(clock_text(0) == "0:00");
  CHECK(clock_text(65.4) == "1:05");
  CHECK(clock_text(3600 + 62) == "1:01:02");
  CHECK(clock_text(-3) == "0:00");
  CHECK(clock_text(1e300) == "277777:46:40");
}

}  // namespace
}  // namespace lumen::runtime
