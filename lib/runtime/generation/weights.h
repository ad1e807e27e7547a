// What loading a model for inference does with its weights: checks them, and repacks those that
// only products read into panels (lib/kernels/panels.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/base/pool.h"
#include "lib/graph/tensor.h"
#include "lib/io/sha256.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::runtime {

// A constant in rows, and the panels that suit its first sixteen: short
// (lib/kernels/short_panels.h) or not.
struct PackableWeight {
  graph::NodePtr node;
  Layout layout;
};

// The constants that `output` uses as weights of linear layers and for nothing else, of a type and
// width that has panels. A matrix that is also used otherwise (an embedding) is not among them.
std::vector<PackableWeight> packable_weights(const graph::Tensor& output);

// Bytes of their panels if all panels of a matrix are like its first.
uint64_t packed_bytes(std::span<const PackableWeight> weights);

// Bytes of the weights of linear layers, and of other constants it multiplies by (GPT-2's layers,
// heads of latent attention), that `output` reads for one token, in whatever layout: of experts
// those of as many as are chosen.
uint64_t product_weight_bytes(const graph::Tensor& output);

// Whether all weights of linear layers that `output` reads are quantised and multiplied as panels:
// then many rows of an activation get the bits that each gets alone
// (lib/kernels/weights/int8_product.h).
bool are_quantized_panels(const graph::Tensor& output);

// What repacking some weights changed, in bytes: what a pass reads of them, compared with plain
// panels, and the panels, compared with what packed_bytes() said.
struct RepackedBytes {
  int64_t read = 0, packed = 0;
};

// Weights on their way into panels. Not thread-safe.
class Repacking {
 public:
  Repacking() = default;  // of nothing

  // Products multiply `weights` as panels from now on, though they are still rows: what advance()
  // changes later is the speed, not a bit. Plans compiled before are invalid. Reserves what the
  // panels take at most, or `room` if that is less, in huge pages, which take no memory before they
  // are written. Throws Error(kResource).
  Repacking(std::vector<PackableWeight> weights, uint64_t room);

  bool done() const { return next_ == weights_.size(); }

  // Replaces weights by panels, in parallel, until `bytes` more are panels, all are, or
  // `is_stopped` says so, and gives the pages of a mapped file back as it goes: file and copy are
  // never resident together. A weight that needs more than is left of the room stays rows. Plans
  // compiled before are invalid. noexcept.
  RepackedBytes advance(uint64_t bytes, ThreadPool& pool, FunctionRef<bool()> is_stopped);

 private:
  std::vector<PackableWeight> weights_;
  size_t next_ = 0;  // the first that is still rows
  std::shared_ptr<const Buffer> memory_;
  size_t offset_ = 0;  // of its panels in memory_
};

// Replaces quantised matrices with rows of fewer than 256 columns, a block of the K-quants, by the
// same numbers in float16, or float32 if the largest is beyond 65504 or below 2⁻⁶. Products with
// quantised weights round activations to 8 bits, 0.6 % of each sum however wide it is; models so
// narrow are the most sensitive to that and gain the least speed by it. A matrix with a scale that
// is not finite stays. Throws Error(kResource).
void widen_narrow_rows(NamedArrays& tensors, ThreadPool& pool);

// Adds names, types, shapes and, of each tensor, the ends and lines spread over the rest to `hash`:
// all of it would have to be read from the disk again.
void hash_tensors(const NamedArrays& tensors, io::Sha256& hash);

// Throws Error(kMalformed) naming the first of `tensors` that has a NaN or infinite number: an
// element of a float tensor, a block scale of a quantised one.
void require_finite(const NamedArrays& tensors, ThreadPool& pool);

}  // namespace lumen::runtime
