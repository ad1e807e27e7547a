#include "lib/optim/grad_scaler.h"

#include "lib/base/testing.h"

using namespace lumen;
using testing::contains;
using testing::refusal;

TEST_CASE("the scale doubles after enough good steps in a row and halves on an overflow") {
  optim::GradScaler scaler;
  CHECK(scaler.scale() == 65536);
  for (int i = 0; i < 1999; ++i) CHECK(scaler.update(true));
  CHECK(scaler.scale() == 65536);
  CHECK(scaler.update(true));
  CHECK(scaler.scale() == 131072);
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  CHECK_FALSE(scaler.update(false));
  CHECK(scaler.scale() == 65536);
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  CHECK(scaler.scale() == 65536);
  scaler.update(true);
  CHECK(scaler.scale() == 131072);
}

TEST_CASE("the scale stays a number that float32 has") {
  optim::GradScaler scaler({.init_scale = 1, .growth_interval = 1});
  for (int i = 0; i < 300; ++i) scaler.update(true);
  CHECK(scaler.scale() == 0x1p127);
  for (int i = 0; i < 300; ++i) scaler.update(false);
  CHECK(scaler.scale() == 0x1p-126);
}

TEST_CASE("a scaler goes on from its state") {
  optim::GradScaler a({.growth_interval = 3}), b({.growth_interval = 3});
  a.update(false);
  a.update(true), a.update(true);
  b.load_state(io::parse_json(a.state().dump(), "state"));
  CHECK(b.scale() == 32768);
  b.update(true);
  CHECK(b.scale() == 65536);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { b.load_state({{"scale", 0}}); }), "scale"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { optim::GradScaler({.growth_factor = 1}); }),
                 "growth factor"));
}
