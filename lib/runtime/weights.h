// What loading a model for inference does with its weights: checks them, and repacks those that
// only products read into panels (lib/kernels/panels.h).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
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

// Whether all weights of linear layers that `output` reads are quantised and in panels: then many
// rows of an activation get the bits that each gets alone (lib/kernels/int8_product.h).
bool are_quantized_panels(const graph::Tensor& output);

// Replaces the values of `weights` by panels in one block of huge pages, in parallel, and gives the
// pages of a mapped file back as it goes: file and copy are never resident together. With `checked`
// throws Error(kMalformed) naming a weight that has a NaN or infinite number (scale, if quantised).
// Throws Error(kResource) if there is no memory. Plans compiled from the graph before are invalid.
void pack_weights(std::span<const graph::NodePtr> weights, bool checked, ThreadPool& pool);

// Throws Error(kMalformed) naming the first of `tensors`, but for those named in `known`, that has
// a NaN or infinite number: an element of a float tensor, a block scale of a quantised one.
void require_finite(const NamedArrays& tensors, const std::set<std::string>& known,
                    ThreadPool& pool);

}  // namespace lumen::runtime
