// What loading a model for inference does with its weights: checks them, and repacks those that
// only products read into panels (lib/kernels/panels.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/base/pool.h"
#include "lib/graph/tensor.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::runtime {

// The constants that `output` uses as weights of linear layers and for nothing else, of a type and
// width that has panels. A matrix that is also used otherwise (an embedding) is not among them.
std::vector<graph::NodePtr> packable_weights(const graph::Tensor& output);

// Bytes that pack_weights takes.
uint64_t packed_bytes(std::span<const graph::NodePtr> weights);

// Bytes of all weights of linear layers that `output` reads, in whatever layout.
uint64_t product_weight_bytes(const graph::Tensor& output);

// Whether all weights of linear layers that `output` reads are quantised and multiplied as panels:
// then many rows of an activation get the bits that each gets alone (lib/kernels/int8_product.h).
bool are_quantized_panels(const graph::Tensor& output);

// Makes products multiply `weights` as panels from now on, though they are still rows: what
// pack_weights() changes later is the speed, not a bit. Plans compiled before are invalid.
void use_as_panels(std::span<const graph::NodePtr> weights);

// Memory for packed_bytes(weights) in huge pages, which takes none of it before it is written.
// Throws Error(kResource).
std::shared_ptr<const Buffer> reserve_panels(std::span<const graph::NodePtr> weights);

// Replaces the values of `weights` by panels in `memory`, which reserve_panels() gave for them, in
// parallel, and gives the pages of a mapped file back as it goes: file and copy are never resident
// together. Stops between two weights when `stop` is set. Plans compiled before are invalid.
// noexcept.
void pack_weights(std::span<const graph::NodePtr> weights, std::shared_ptr<const Buffer> memory,
                  ThreadPool& pool, const std::atomic<bool>& stop);

// Throws Error(kMalformed) naming the first of `tensors` that has a NaN or infinite number: an
// element of a float tensor, a block scale of a quantised one.
void require_finite(const NamedArrays& tensors, ThreadPool& pool);

}  // namespace lumen::runtime
