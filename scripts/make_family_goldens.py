#!/usr/bin/env python3
"""Makes testdata/goldens/families.{json,safetensors}: small models as transformers has them.

Usage: make_family_goldens.py OUTPUT_DIRECTORY     (needs torch, transformers, safetensors, numpy)

families.json: the versions, and per case its config.json. families.safetensors: per case, computed in
float64 and stored as float32, the weights "CASE/NAME", the token ids "CASE/tokens" int32
[batch, tokens], the logits "CASE/logits", and of the sum of log-probabilities of the next tokens
the gradients "CASE/gradient/NAME" of the weights of the first layer and of the final norm. Names are
those of files, but of Nemotron-H, Mamba and Mamba-2 as in other families; each expert has matrices of
its own. Of mixtures of experts also the loss that balances them "CASE/balance/loss" [2], of all tokens and of
those "CASE/balance/counts" int32 [batch, tokens] is 1 of, and of the latter the gradients
"CASE/balance/NAME" of the first layer's.
"""
import copy
import json
import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch
import transformers

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LOCAL, GLOBAL, LINEAR = "sliding_attention", "full_attention", "linear_attention"


def longrope(original):
    return {"max_position_embeddings": 64, "original_max_position_embeddings": original,
            "partial_rotary_factor": 0.75,
            "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.5],
                             "long_factor": [1.0, 2.5, 4.0]}}


LATENT_HEADS = {"num_key_value_heads": 2, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
                "qk_rope_head_dim": 4}
LATENT = LATENT_HEADS | {"v_head_dim": 8, "moe_intermediate_size": 12, "num_experts_per_tok": 2}

# time_step_min as of NEMOTRON.
ZAMBA = {"n_mamba_heads": 4, "mamba_d_state": 6, "chunk_size": 5, "adapter_rank": 3,
         "time_step_min": 1e-12}
YARN_OF_LATENT = YARN | {"rope_theta": 1e4, "original_max_position_embeddings": 5, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}
LAGUNA = {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
          "shared_expert_intermediate_size": 20}
GEMMA3N = {"head_dim": 8, "sliding_window": 3, "hidden_size_per_layer_input": 6, "laurel_rank": 5}
GEMMA4 = {"head_dim": 8, "global_head_dim": 16, "sliding_window": 3, "final_logit_softcapping": 30.0}
MAMBA = {"shared_intermediate_size": 20, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 6,
         "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.3,
         "logits_scaling": 6.0}

# time_step_min is a limit in transformers, of prompts alone, and not in the models it is for.
NEMOTRON = {"head_dim": 12, "mamba_num_heads": 4, "mamba_head_dim": 6, "n_groups": 2,
            "ssm_state_size": 6, "chunk_size": 5, "time_step_min": 1e-12, "time_step_floor": 1e-12}
MAMBA2 = {"num_heads": 4, "head_dim": 8, "n_groups": 2, "state_size": 6, "chunk_size": 5}
KIMI = {"num_hidden_layers": 3, "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
        "v_head_dim": 8, "moe_intermediate_size": 12, "num_local_experts": 4,
        "num_experts_per_tok": 2, "linear_num_heads": 2, "linear_head_dim": 6, "num_key_value_heads": 2}
BAMBA = {"num_hidden_layers": 3, "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_state": 6,
         "mamba_chunk_size": 5}
FALCON = {"mamba_d_ssm": 24, "mamba_n_heads": 4, "mamba_d_state": 6, "mamba_chunk_size": 5,
          "embedding_multiplier": 5.6, "lm_head_multiplier": 0.2, "key_multiplier": 0.6,
          "attention_in_multiplier": 1.2, "attention_out_multiplier": 0.9,
          "ssm_in_multiplier": 1.3, "ssm_out_multiplier": 0.7, "mlp_multipliers": [0.8, 0.6],
          "ssm_multipliers": [0.7, 0.8, 0.9, 1.1, 1.2]}

# Case → class of the model, and the keys of its config beside the common ones.
CASES = {
    "llama": ("Llama", {"rope_theta": 5e5, "rope_scaling": LLAMA3, "mlp_bias": True}),
    "llama4": ("Llama4", {"head_dim": 8, "num_local_experts": 3, "intermediate_size_mlp": 20,
                          "interleave_moe_layer_step": 2, "num_hidden_layers": 4,
                          "floor_scale": 4, "attn_scale": 0.3, "attention_chunk_size": 3}),
    "llama4-plain": ("Llama4", {"head_dim": 8, "num_local_experts": 4, "use_qk_norm": False,
                                "num_experts_per_tok": 2,
                                "num_hidden_layers": 3, "no_rope_layers": [0, 1, 0],
                                "moe_layers": [0, 2], "intermediate_size_mlp": 36,
                                "attn_temperature_tuning": False, "tie_word_embeddings": True,
                                "rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}),
    "mistral": ("Mistral", {"sliding_window": 4, "head_dim": 6}),
    "ministral3": ("Ministral3", {"head_dim": 8, "rope_parameters": {
        "type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 5,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}}),
    "qwen2": ("Qwen2", {"rope_theta": 1e6, "rope_scaling": YARN}),
    "qwen3": ("Qwen3", {"head_dim": 8, "rope_theta": 1e6, "tie_word_embeddings": True}),
    "qwen2vl": ("Qwen2VL", {"rope_parameters": {"rope_type": "mrope", "rope_theta": 1e6,
                                                "mrope_section": [1, 2, 1]}}),
    "qwen2_5vl": ("Qwen2_5_VL", {"rope_scaling": YARN | {"mrope_section": [1, 2, 1]},
                                 "use_sliding_window": True, "sliding_window": 4,
                                 "max_window_layers": 1, "tie_word_embeddings": True}),
    "qwen3vl": ("Qwen3VL", {"head_dim": 16, "attention_bias": True, "rope_parameters": {
        "rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2],
        "mrope_interleaved": True}}),
    "qwen3vlmoe": ("Qwen3VLMoe", {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                                  "moe_intermediate_size": 12, "num_hidden_layers": 3,
                                  "mlp_only_layers": [1], "rope_parameters": {
                                      "rope_type": "default", "rope_theta": 5e6,
                                      "mrope_section": [3, 3, 2], "mrope_interleaved": True}}),
    "gemma": ("Gemma", {"head_dim": 8}),
    "gemma2": ("Gemma2", {"head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 3,
                          "num_hidden_layers": 3}),
    "gemma2-uncapped": ("Gemma2", {"head_dim": 8, "query_pre_attn_scalar": 12,
                                   "attn_logit_softcapping": None,
                                   "final_logit_softcapping": None}),
    "gemma3": ("Gemma3", {"head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 3,
                          "num_hidden_layers": 3, "layer_types": [LOCAL, GLOBAL, LOCAL],
                          "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                          "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "gemma3n": ("Gemma3n", GEMMA3N | {"num_hidden_layers": 5, "num_kv_shared_layers": 3,
                                      "layer_types": [LOCAL, GLOBAL, LOCAL, LOCAL, GLOBAL],
                                      "altup_num_inputs": 4, "vocab_size_per_layer_input": 23,
                                      "activation_sparsity_pattern": [0.7, 0.0, 0.3, 0.9, 0.0]}),
    "gemma3n-other": ("Gemma3n", GEMMA3N | {"layer_types": [GLOBAL, LOCAL],
                                            "altup_num_inputs": 3, "altup_active_idx": 1,
                                            "altup_correct_scale": False,
                                            "intermediate_size": [24, 20],
                                            "num_kv_shared_layers": 0, "attention_bias": True,
                                            "vocab_size_per_layer_input": 40,
                                            "rope_scaling": {"rope_type": "linear",
                                                             "factor": 8.0}}),
    "gemma4": ("Gemma4", GEMMA4 | {"num_hidden_layers": 5, "num_kv_shared_layers": 3,
                                   "layer_types": [LOCAL, GLOBAL, LOCAL, LOCAL, GLOBAL],
                                   "vocab_size_per_layer_input": 29,
                                   "hidden_size_per_layer_input": 6,
                                   "use_double_wide_mlp": True}),
    "gemma4-large": ("Gemma4", GEMMA4 | {"layer_types": [GLOBAL, LOCAL, GLOBAL],
                                         "num_hidden_layers": 3, "num_key_value_heads": 2,
                                         "num_global_key_value_heads": 1,
                                         "attention_k_eq_v": True, "attention_bias": True,
                                         "hidden_size_per_layer_input": 0}),
    "gemma4-experts": ("Gemma4", GEMMA4 | {"layer_types": [LOCAL, GLOBAL], "num_experts": 4,
                                           "enable_moe_block": True, "top_k_experts": 2,
                                           "moe_intermediate_size": 12,
                                           "hidden_size_per_layer_input": 0}),
    "gemma4unified": ("Gemma4Unified", GEMMA4 | {"layer_types": [LOCAL, GLOBAL],
                                                 "final_logit_softcapping": None}),
    "phi3": ("Phi3", {"sliding_window": 5}),
    "phi3-short": ("Phi3", longrope(32)),
    "phi3-long": ("Phi3", longrope(8)),
    "smollm3": ("SmolLM3", {"no_rope_layer_interval": 2, "rope_theta": 5e6}),
    "olmo2": ("Olmo2", {"rope_theta": 5e5}),
    "olmo3": ("Olmo3", {"sliding_window": 3, "layer_types": [LOCAL, GLOBAL], "rope_theta": 5e5,
                        "rope_scaling": YARN}),
    "granite": ("Granite", {"embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                            "attention_multiplier": 0.3, "logits_scaling": 8.0,
                            "attention_bias": True, "tie_word_embeddings": True}),
    "granitemoe": ("GraniteMoe", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                  "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                                  "attention_multiplier": 0.3, "logits_scaling": 6.0,
                                  "tie_word_embeddings": True}),
    "granitemoeshared": ("GraniteMoeShared", {"num_local_experts": 4, "num_experts_per_tok": 2,
                                              "shared_intermediate_size": 20,
                                              "residual_multiplier": 0.22,
                                              "attention_multiplier": 0.3,
                                              "attention_bias": True}),
    "granitehybrid": ("GraniteMoeHybrid", MAMBA | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "mamba_chunk_size": 5,
        "layer_types": ["mamba", "attention"], "tie_word_embeddings": True}),
    "granitehybrid-dense": ("GraniteMoeHybrid", MAMBA | {
        "num_local_experts": 0, "mamba_n_groups": 2, "mamba_d_conv": 3, "mamba_conv_bias": False,
        "mamba_proj_bias": True, "time_step_limit": [0.3, 1.2], "num_hidden_layers": 3,
        "layer_types": ["mamba", "attention", "mamba"], "position_embedding_type": "rope"}),
    "granitehybrid-attention": ("GraniteMoeHybrid", MAMBA | {
        "num_local_experts": 0, "layer_types": ["attention", "attention"],
        "position_embedding_type": "rope", "attention_bias": True}),
    "nemotron_h": ("NemotronH", NEMOTRON | {
        "layers_block_type": ["mamba", "mlp", "attention", "mlp"]}),
    "nemotron_h-biased": ("NemotronH", NEMOTRON | {
        "layers_block_type": ["attention", "mamba", "mlp"], "use_bias": True, "mlp_bias": True,
        "use_conv_bias": False}),
    "nemotron_h-experts": ("NemotronH", NEMOTRON | {
        "layers_block_type": ["moe", "mamba", "attention"], "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 12,
        "moe_shared_expert_intermediate_size": 20, "routed_scaling_factor": 2.5}),
    "nemotron_h-latent": ("NemotronH", NEMOTRON | {
        "layers_block_type": ["moe", "attention", "mlp"], "n_routed_experts": 8,
        "num_experts_per_tok": 3, "moe_intermediate_size": 12, "moe_latent_size": 10,
        "moe_shared_expert_intermediate_size": 8, "n_group": 4, "topk_group": 2,
        "norm_topk_prob": False, "mlp_bias": True}),
    "falcon_h1": ("FalconH1", FALCON),
    "falcon_h1-norm": ("FalconH1", FALCON | {
        "mamba_rms_norm": True, "mamba_norm_before_gate": False, "mamba_n_groups": 2,
        "mamba_conv_bias": False, "attention_bias": True, "mlp_bias": True, "head_dim": 12}),
    "falcon_h1-before": ("FalconH1", FALCON | {
        "mamba_rms_norm": True, "mamba_n_groups": 2, "mamba_proj_bias": True,
        "projectors_bias": True, "time_step_limit": [0.3, 1.2], "tie_word_embeddings": True}),
    "mamba2": ("Mamba2", MAMBA2),
    "mamba2-biased": ("Mamba2", MAMBA2 | {
        "n_groups": 1, "conv_kernel": 3, "use_bias": True, "use_conv_bias": False,
        "time_step_limit": [0.01, 0.5], "tie_word_embeddings": True}),
    "mixtral": ("Mixtral", {"num_local_experts": 3, "num_experts_per_tok": 2,
                            "sliding_window": 5}),
    "minimaxm2": ("MiniMaxM2", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
                                "rotary_dim": 4}),
    "minimaxm2-whole": ("MiniMaxM2", {"num_local_experts": 4, "num_experts_per_tok": 3,
                                      "head_dim": 12, "rope_scaling": YARN}),
    "qwen3moe": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
                              "moe_intermediate_size": 12, "norm_topk_prob": True,
                              "num_hidden_layers": 3, "mlp_only_layers": [1]}),
    "qwen3moe-step": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 3, "head_dim": 8,
                                   "moe_intermediate_size": 12, "num_hidden_layers": 3,
                                   "decoder_sparse_step": 2}),
    "qwen2moe": ("Qwen2Moe", {"num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3,
                              "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20,
                              "mlp_only_layers": [1], "use_sliding_window": True,
                              "sliding_window": 3, "max_window_layers": 2}),
    "olmoe": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 12}),
    "seed_oss": ("SeedOss", {"head_dim": 12, "attention_out_bias": True, "mlp_bias": True}),
    "glm4": ("Glm4", {"head_dim": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e4}),
    "ernie4_5": ("Ernie4_5", {"head_dim": 12, "use_bias": True}),
    "starcoder2": ("Starcoder2", {"sliding_window": 4}),
    "cohere": ("Cohere", {"use_qk_norm": True, "attention_bias": True, "logit_scale": 0.5,
                          "num_attention_heads": 4, "num_key_value_heads": 2}),
    "cohere2": ("Cohere2", {"sliding_window": 3, "num_hidden_layers": 4}),
    "nemotron": ("Nemotron", {"head_dim": 12, "attention_bias": True, "mlp_bias": True}),
    "apertus": ("Apertus", {"rope_theta": 1e4, "rope_scaling": LLAMA3}),
    "apertus-plain": ("Apertus", {"attention_bias": True, "tie_word_embeddings": True,
                                  "num_attention_heads": 4, "num_key_value_heads": 2,
                                  "rope_parameters": {"rope_type": "default",
                                                      "rope_theta": 1e4}}),
    "arcee": ("Arcee", {"head_dim": 12, "attention_bias": True, "mlp_bias": True,
                        "rope_scaling": YARN}),
    "glm": ("Glm", {"head_dim": 8}),
    "glm-plain": ("Glm", {"head_dim": 12, "attention_bias": False, "partial_rotary_factor": 1.0,
                          "tie_word_embeddings": True, "rope_scaling": YARN}),
    "phimoe": ("Phimoe", {"num_local_experts": 4, "attention_bias": True, "lm_head_bias": True,
                          "router_jitter_noise": 0.4}),
    "phimoe-short": ("Phimoe", {"num_local_experts": 6, "sliding_window": 5,
                                "router_jitter_noise": 0.8, "num_attention_heads": 2,
                                "max_position_embeddings": 64,
                                "rope_scaling": {"rope_type": "longrope", "factor": 2.0,
                                                 "short_factor": [1.0, 1.1, 1.5, 2.0],
                                                 "long_factor": [1.0, 2.5, 4.0, 5.0],
                                                 "short_mscale": 1.2, "long_mscale": 1.2,
                                                 "original_max_position_embeddings": 32}}),
    "phi": ("Phi", {"num_key_value_heads": 2}),
    "gptneox": ("GPTNeoX", {"num_key_value_heads": 2, "rotary_pct": 0.5}),
    "gptneox-sequential": ("GPTNeoX", {"num_key_value_heads": 4, "num_attention_heads": 4,
                                       "hidden_act": "gelu_fast", "use_parallel_residual": False,
                                       "attention_bias": False, "rotary_emb_base": 500,
                                       "rotary_pct": 1.0, "tie_word_embeddings": True}),
    "stablelm": ("StableLm", {"partial_rotary_factor": 0.5, "use_qkv_bias": True}),
    "stablelm-parallel": ("StableLm", {"use_parallel_residual": True, "num_attention_heads": 4,
                                       "qk_layernorm": True, "num_key_value_heads": 2,
                                       "partial_rotary_factor": 0.5,
                                       "tie_word_embeddings": True,
                                       "rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
    "qwen3_5": ("Qwen3_5", {"head_dim": 8, "num_hidden_layers": 3, "layer_types": [LINEAR, GLOBAL, LINEAR],
                            "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                            "linear_key_head_dim": 4, "linear_value_head_dim": 6,
                            "rope_theta": 1e7, "attention_bias": True}),
    "qwen3_5-tied": ("Qwen3_5", {"head_dim": 8, "layer_types": [GLOBAL, LINEAR],
                                 "linear_num_key_heads": 2, "linear_num_value_heads": 2,
                                 "linear_key_head_dim": 6, "linear_value_head_dim": 4,
                                 "linear_conv_kernel_dim": 3, "tie_word_embeddings": True}),
    "qwen3_5moe": ("Qwen3_5Moe", {"head_dim": 8, "num_hidden_layers": 3,
                                  "layer_types": [LINEAR, GLOBAL, LINEAR],
                                  "num_experts": 4, "num_experts_per_tok": 2,
                                  "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20,
                                  "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                                  "linear_key_head_dim": 4, "linear_value_head_dim": 6,
                                  "rope_theta": 1e7}),
    "qwen3next": ("Qwen3Next", {"head_dim": 8, "num_hidden_layers": 3,
                                "layer_types": [LINEAR, GLOBAL, LINEAR],
                                "num_experts": 4, "num_experts_per_tok": 2,
                                "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20,
                                "linear_num_key_heads": 2, "linear_num_value_heads": 6,
                                "linear_key_head_dim": 4, "linear_value_head_dim": 6,
                                "rope_theta": 1e7, "mlp_only_layers": [1]}),
    "qwen3next-step": ("Qwen3Next", {"head_dim": 8, "num_hidden_layers": 4,
                                     "full_attention_interval": 2, "decoder_sparse_step": 2,
                                     "num_experts": 4, "num_experts_per_tok": 3,
                                     "norm_topk_prob": False, "moe_intermediate_size": 12,
                                     "shared_expert_intermediate_size": 8,
                                     "linear_num_key_heads": 2, "linear_num_value_heads": 2,
                                     "linear_key_head_dim": 6, "linear_value_head_dim": 4,
                                     "linear_conv_kernel_dim": 3, "tie_word_embeddings": True}),
    "olmohybrid": ("OlmoHybrid", {"num_hidden_layers": 3, "layer_types": [LINEAR, GLOBAL, LINEAR],
                                  "rope_theta": None, "linear_num_key_heads": 2,
                                  "linear_num_value_heads": 4}),
    "olmohybrid-rotating": ("OlmoHybrid", {"layer_types": [LINEAR, GLOBAL], "rope_theta": 5e5,
                                           "rope_scaling": YARN, "linear_key_head_dim": 5,
                                           "linear_value_head_dim": 7,
                                           "linear_conv_kernel_dim": 3,
                                           "linear_allow_neg_eigval": False,
                                           "tie_word_embeddings": True}),
    "kimilinear": ("KimiLinear", KIMI | {"layer_types": [LINEAR, GLOBAL, LINEAR]}),
    "kimilinear-other": ("KimiLinear", KIMI | {
        "layer_types": [LINEAR, LINEAR, GLOBAL], "q_lora_rank": 10, "num_local_experts": 6,
        "n_group": 3, "topk_group": 2, "n_shared_experts": 2, "norm_topk_prob": False,
        "mlp_layer_types": ["sparse", "dense", "sparse"], "linear_conv_kernel_dim": 3,
        "linear_num_heads": 3, "attention_bias": True}),
    "bamba": ("Bamba", BAMBA),
    "bamba-biased": ("Bamba", BAMBA | {
        "mamba_n_groups": 2, "mamba_d_conv": 3, "mamba_conv_bias": False, "mamba_proj_bias": True,
        "attention_bias": True, "mlp_bias": True, "time_step_limit": [0.3, 1.2], "head_dim": 8,
        "attn_layer_indices": [0], "tie_word_embeddings": True}),
    "mamba": ("Mamba", {"intermediate_size": 32, "state_size": 6}),
    "mamba-biased": ("Mamba", {"intermediate_size": 20, "state_size": 5, "time_step_rank": 3,
                               "conv_kernel": 3, "use_bias": True, "use_conv_bias": False,
                               "tie_word_embeddings": False}),
    "falconmamba": ("FalconMamba", {"intermediate_size": 32, "state_size": 6, "time_step_rank": 4,
                                    "mixer_rms_eps": 1e-3}),
    "jamba": ("Jamba", {"num_hidden_layers": 3, "attn_layer_period": 2, "attn_layer_offset": 1,
                        "num_experts": 4, "mamba_d_state": 6, "mamba_dt_rank": 3}),
    "jamba-dense": ("Jamba", {"attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 1,
                              "mamba_d_state": 5, "mamba_dt_rank": 2, "mamba_d_conv": 3, "mamba_conv_bias": False,
                              "mamba_proj_bias": True, "tie_word_embeddings": True}),
    "deepseek2": ("DeepseekV2", LATENT | {"q_lora_rank": None, "n_routed_experts": 4,
                                          "n_shared_experts": 2, "first_k_dense_replace": 1}),
    "deepseek2-groups": ("DeepseekV2", LATENT | {
        "q_lora_rank": 10, "n_routed_experts": 6, "n_shared_experts": 1, "v_head_dim": 14,
        "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2,
        "routed_scaling_factor": 3.0, "attention_bias": True,
        "rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 0.5}}),
    "deepseek3": ("DeepseekV3", LATENT | {
        "q_lora_rank": 10, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4,
        "topk_group": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
        "rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}),
    "deepseek3-halves": ("DeepseekV3", LATENT | {
        "q_lora_rank": None, "n_routed_experts": 4, "n_shared_experts": 2, "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 0, "norm_topk_prob": False,
        "rope_interleave": False, "tie_word_embeddings": True}),
    "glm4moelite": ("Glm4MoeLite", LATENT | {
        "q_lora_rank": 10, "n_routed_experts": 4, "n_shared_experts": 1, "num_hidden_layers": 3,
        "mlp_layer_types": ["dense", "sparse", "dense"]}),
    "dots1": ("Dots1", {"head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
                        "n_shared_experts": 2, "moe_intermediate_size": 12, "norm_topk_prob": True,
                        "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
                        "num_hidden_layers": 3, "sliding_window": 3, "max_window_layers": 2}),
    "dots1-groups": ("Dots1", {"head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 3,
                               "n_shared_experts": 1, "moe_intermediate_size": 12, "n_group": 4,
                               "topk_group": 2, "attention_bias": True}),
    "lfm2": ("Lfm2", {"layer_types": ["conv", GLOBAL, "conv"], "num_hidden_layers": 3,
                      "block_auto_adjust_ff_dim": False}),
    "lfm2-adjusted": ("Lfm2", {"full_attn_idxs": [0], "conv_bias": True, "conv_L_cache": 4,
                               "intermediate_size": 40, "block_multiple_of": 8,
                               "block_ffn_dim_multiplier": 1.3, "tie_word_embeddings": False}),
    "lfm2moe": ("Lfm2Moe", {"layer_types": ["conv", GLOBAL], "num_experts": 4,
                            "num_experts_per_tok": 2, "num_dense_layers": 0,
                            "moe_intermediate_size": 12}),
    "lfm2moe-scores": ("Lfm2Moe", {"layer_types": ["conv", GLOBAL, "conv"], "num_hidden_layers": 3,
                                   "num_experts": 4, "num_experts_per_tok": 3, "num_dense_layers": 1,
                                   "moe_intermediate_size": 12, "norm_topk_prob": False,
                                   "use_expert_bias": False, "routed_scaling_factor": 2.5,
                                   "conv_bias": True, "tie_word_embeddings": False}),
    "ernie4_5moe": ("Ernie4_5_Moe", {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 2,
                                     "moe_intermediate_size": 12, "num_hidden_layers": 3,
                                     "moe_layer_start_index": 0, "moe_layer_end_index": 1}),
    "ernie4_5moe-least": ("Ernie4_5_Moe", {"moe_num_experts": 4, "moe_k": 2, "moe_norm_min": 0.8,
                                           "moe_num_shared_experts": 1, "moe_intermediate_size": 12,
                                           "moe_layer_start_index": 0, "num_hidden_layers": 4,
                                           "moe_layer_interval": 3, "use_bias": True}),
    "glm4moe": ("Glm4Moe", {"head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
                            "moe_intermediate_size": 12, "attention_bias": True,
                            "first_k_dense_replace": 1}),
    "glm4moe-groups": ("Glm4Moe", {"head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 3,
                                   "moe_intermediate_size": 12, "n_shared_experts": 2, "n_group": 4,
                                   "topk_group": 2, "use_qk_norm": True, "norm_topk_prob": False,
                                   "routed_scaling_factor": 2.5, "first_k_dense_replace": 0}),
    # Ling 2.0, which is not in transformers: GLM-4.5 by other names.
    "ling": ("Glm4Moe", {"head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 3,
                         "moe_intermediate_size": 12, "n_shared_experts": 2, "n_group": 4,
                         "topk_group": 2, "use_qk_norm": True, "routed_scaling_factor": 2.5,
                         "first_k_dense_replace": 1, "rms_norm_eps": 1e-6}),
    "afmoe": ("Afmoe", {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                        "moe_intermediate_size": 12, "num_shared_experts": 2, "route_scale": 2.5,
                        "num_hidden_layers": 3, "num_dense_layers": 1, "sliding_window": 3,
                        "global_attn_every_n_layers": 2, "mup_enabled": True}),
    "afmoe-plain": ("Afmoe", {"head_dim": 12, "num_experts": 5, "num_experts_per_tok": 3,
                              "moe_intermediate_size": 12, "num_shared_experts": 1,
                              "num_dense_layers": 0, "sliding_window": 4,
                              "layer_types": [GLOBAL, LOCAL], "tie_word_embeddings": True}),
    "iquestcoder": ("IQuestCoder", {"head_dim": 6, "rope_theta": 5e5}),
    "helium": ("Helium", {"num_key_value_heads": 2, "head_dim": 8, "attention_bias": True,
                          "mlp_bias": True}),
    "cwm": ("Cwm", {"head_dim": 12, "num_hidden_layers": 5, "sliding_window": 3}),
    "hyperclovax": ("HyperCLOVAX", {"embedding_multiplier": 3.0, "residual_multiplier": 0.4,
                                    "attention_multiplier": 0.3, "logits_scaling": 0.5,
                                    "attention_bias": True, "mlp_bias": True}),
    "hyperclovax-plain": ("HyperCLOVAX", {"use_post_norm": False, "tie_word_embeddings": True}),
    "exaone": ("Exaone", {"rope_theta": 5e5, "rope_scaling": LLAMA3, "head_dim": 10}),
    "internlm3": ("InternLM3", {"head_dim": 8, "qkv_bias": True, "bias": True, "rope_scaling": {
        "rope_type": "dynamic", "factor": 6.0}}),
    # MiniCPM, which is not in transformers: Granite by other names, with the usual scale of scores.
    "minicpm": ("Granite", {"embedding_multiplier": 12.0, "residual_multiplier": 1.4 / 2 ** 0.5,
                            "logits_scaling": 1.6, "attention_multiplier": 8 ** -0.5,
                            "tie_word_embeddings": True}),
    "olmo": ("Olmo", {"clip_qkv": 0.8, "attention_bias": True}),
    "olmo-plain": ("Olmo", {"tie_word_embeddings": True, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "rope_scaling": YARN}),
    "olmoe-clipped": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2,
                                "intermediate_size": 12, "clip_qkv": 0.9}),
    "falcon": ("Falcon", {"bias": True}),
    "falcon-grouped": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 2,
                                  "num_attention_heads": 6, "hidden_size": 24,
                                  "tie_word_embeddings": False}),
    "falcon-one-norm": ("Falcon", {"new_decoder_architecture": True, "num_kv_heads": 3,
                                   "num_attention_heads": 3, "num_ln_in_parallel_attn": 1,
                                   "hidden_size": 24, "ffn_hidden_size": 36,
                                   "rope_theta": 500042.0}),
    "falcon-sequential": ("Falcon", {"parallel_attn": False, "multi_query": False}),
    "lfm3": ("Lfm3", {"num_hidden_layers": 4, "head_dim": 8, "sliding_window": 3,
                      "layer_types": ["conv", LOCAL, GLOBAL, "conv"]}),
    "lfm3-plain": ("Lfm3", {"num_hidden_layers": 3, "head_dim": 12, "sliding_window": 4,
                            "conv_L_cache": 3, "conv_bias": True, "use_sandwich_norm": False,
                            "use_attention_gate": False, "attention_bias": True,
                            "tie_word_embeddings": False, "layer_types": [LOCAL, "conv", GLOBAL]}),
    "vaultgemma": ("VaultGemma", {"head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 3,
                                  "num_hidden_layers": 3}),
    "ministral": ("Ministral", {"head_dim": 6, "sliding_window": 4}),
    "ministral-mixed": ("Ministral", {"head_dim": 8, "sliding_window": 3,
                                      "layer_types": [GLOBAL, LOCAL], "rope_scaling": YARN,
                                      "tie_word_embeddings": True}),
    "jais2": ("Jais2", {}),
    "jais2-plain": ("Jais2", {"attention_bias": False, "mlp_bias": False, "head_dim": 12,
                              "tie_word_embeddings": True, "rope_scaling": LLAMA3}),
    "youtu": ("Youtu", LATENT_HEADS | {"q_lora_rank": 10, "v_head_dim": 8}),
    "youtu-halves": ("Youtu", LATENT_HEADS | {
        "q_lora_rank": None, "v_head_dim": 8, "rope_interleave": False, "tie_word_embeddings": False,
        "rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}),
    "minicpm3": ("MiniCPM3", LATENT_HEADS | {"q_lora_rank": 10, "dim_model_base": 8}),
    "minicpm3-unscaled": ("MiniCPM3", LATENT_HEADS | {
        "q_lora_rank": None, "v_head_dim": 10, "scale_emb": 1, "scale_depth": None,
        "dim_model_base": None, "attention_bias": True, "tie_word_embeddings": False}),
    "solar_open": ("SolarOpen", {"head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
                                 "moe_intermediate_size": 12, "attention_bias": True}),
    "solar_open-groups": ("SolarOpen", {"head_dim": 12, "n_routed_experts": 8,
                                        "num_experts_per_tok": 3, "moe_intermediate_size": 12,
                                        "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
                                        "norm_topk_prob": False, "routed_scaling_factor": 2.5}),
    "mellum": ("Mellum", {"num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
                          "moe_intermediate_size": 12, "num_hidden_layers": 3,
                          "sliding_window": 3, "layer_types": [LOCAL, GLOBAL, LOCAL],
                          "mlp_layer_types": ["sparse", "dense", "sparse"],
                          "rope_parameters": {
                              GLOBAL: YARN | {"rope_theta": 5e5},
                              LOCAL: {"rope_type": "default", "rope_theta": 1e4}}}),
    "granite_swa": ("GraniteSWA", {"num_hidden_layers": 4, "sliding_window": 3,
                                   "layer_rope_theta": [0, 1e4, 5e5, 1e4],
                                   "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                                   "attention_multiplier": 0.3, "logits_scaling": 8.0}),
    "granite_swa-plain": ("GraniteSWA", {"layer_types": [LOCAL, GLOBAL], "sliding_window": 4,
                                         "attention_bias": True, "mlp_bias": True,
                                         "tie_word_embeddings": False, "rope_scaling": YARN}),
    "granitemoe_swa": ("GraniteMoeSWA", {"num_hidden_layers": 4, "sliding_window": 3,
                                         "layer_rope_theta": [0, 1e4, 5e5, 1e4],
                                         "num_local_experts": 4, "num_experts_per_tok": 2,
                                         "shared_intermediate_size": 20,
                                         "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                                         "attention_multiplier": 0.3, "logits_scaling": 8.0}),
    "granitemoe_swa-plain": ("GraniteMoeSWA", {"layer_types": [LOCAL, GLOBAL], "sliding_window": 4,
                                               "num_local_experts": 3, "num_experts_per_tok": 2,
                                               "attention_bias": True, "rope_scaling": YARN,
                                               "tie_word_embeddings": True}),
    "mistral4": ("Mistral4", LATENT | {
        "q_lora_rank": 10, "n_routed_experts": 4, "rope_parameters": YARN_OF_LATENT}),
    "mistral4-groups": ("Mistral4", LATENT | {
        "q_lora_rank": None, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "n_group": 4, "topk_group": 2, "norm_topk_prob": False, "routed_scaling_factor": 2.5,
        "first_k_dense_replace": 1, "rope_interleave": False, "tie_word_embeddings": True,
        "rope_parameters": YARN_OF_LATENT}),
    "cohere2moe": ("Cohere2Moe", {
        "head_dim": 8, "num_hidden_layers": 4, "sliding_window": 3, "first_k_dense_replace": 1,
        "prefix_dense_intermediate_size": 36, "num_experts": 4, "num_shared_experts": 2,
        "expert_selection_fn": "sigmoid", "rms_norm_eps": 1e-5}),
    "cohere2moe-softmax": ("Cohere2Moe", {
        "head_dim": 12, "num_hidden_layers": 3, "sliding_window": 4, "sliding_window_pattern": 2,
        "mlp_layer_types": ["sparse", "dense", "sparse"], "num_experts": 4, "num_shared_experts": 1,
        "prefix_dense_sliding_window_pattern": 2, "shared_expert_combination_strategy": "sum",
        "attention_bias": True, "tie_word_embeddings": False}),
    "cohere2moe-scores": ("Cohere2Moe", {
        "head_dim": 8, "layer_types": [LOCAL, GLOBAL], "sliding_window": 3, "num_experts": 4,
        "num_experts_per_tok": 3, "expert_selection_fn": "sigmoid", "norm_topk_prob": False}),
    "hy_v3": ("HYV3", {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                       "moe_intermediate_size": 12, "num_hidden_layers": 3}),
    "hy_v3-biased": ("HYV3", {"head_dim": 12, "num_experts": 5, "num_experts_per_tok": 3,
                              "moe_intermediate_size": 12, "num_shared_experts": 2,
                              "mlp_layer_types": ["sparse", "dense"], "attention_bias": True,
                              "mlp_bias": True, "tie_word_embeddings": True}),
    "laguna": ("Laguna", LAGUNA | {
        "num_hidden_layers": 3, "layer_types": [GLOBAL, LOCAL, LOCAL], "sliding_window": 3,
        "num_attention_heads_per_layer": [2, 4, 3], "moe_routed_scaling_factor": 2.5,
        "rope_parameters": {
            GLOBAL: YARN | {"rope_theta": 5e5, "partial_rotary_factor": 0.5},
            LOCAL: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}}}),
    "laguna-elements": ("Laguna", LAGUNA | {
        "gating": "per-element", "mlp_layer_types": ["sparse", "dense"], "attention_bias": True,
        "moe_router_logit_softcapping": 1.5, "tie_word_embeddings": True, "layer_types": [LOCAL, GLOBAL],
        "rope_parameters": {
            GLOBAL: {"rope_type": "default", "rope_theta": 5e5},
            LOCAL: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}}),
    "recurrent_gemma": ("RecurrentGemma", {"num_hidden_layers": 3, "attention_window_size": 4,
                                           "intermediate_size": 48}),
    "recurrent_gemma-attention": ("RecurrentGemma", {
        "block_types": ["attention", "recurrent"], "attention_window_size": 3, "lru_width": 24,
        "conv1d_width": 3, "attention_bias": True, "num_attention_heads": 4,
        "num_key_value_heads": 2, "tie_word_embeddings": False}),
    "zamba2": ("Zamba2", ZAMBA | {
        "num_hidden_layers": 3, "layers_block_type": ["hybrid", "hybrid", "hybrid"],
        "num_mem_blocks": 2, "num_key_value_heads": 2, "use_shared_attention_adapter": True,
        "use_mem_rope": True}),
    "zamba2-plain": ("Zamba2", ZAMBA | {
        "num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "hybrid"],
        "mamba_ngroups": 2, "mamba_d_conv": 3, "add_bias_linear": True, "hidden_act": "silu"}),
    "nanochat": ("NanoChat", {"num_attention_heads": 4, "num_key_value_heads": 2}),
    "nanochat-other": ("NanoChat", {"attention_bias": True, "tie_word_embeddings": True,
                                    "final_logit_softcapping": None, "rope_scaling": YARN}),
    "bitnet": ("BitNet", {"tie_word_embeddings": True}),
    "bitnet-other": ("BitNet", {"hidden_act": "silu", "attention_bias": True,
                                "num_key_value_heads": 2, "rope_scaling": LLAMA3}),
    "bloom": ("Bloom", {"num_attention_heads": 4}),
    "bloom-odd": ("Bloom", {"num_attention_heads": 6, "hidden_size": 24,
                            "tie_word_embeddings": False}),
    "mpt": ("Mpt", {"num_attention_heads": 4}),
    "mpt-odd": ("Mpt", {"num_attention_heads": 3, "hidden_size": 18, "attn_config": {
        "clip_qkv": 0.8, "softmax_scale": 0.3}}),
    "gpt_bigcode": ("GPTBigCode", {"n_inner": 36}),
    "gpt_bigcode-many": ("GPTBigCode", {"multi_query": False, "scale_attn_weights": False,
                                        "activation_function": "gelu", "n_inner": 24,
                                        "tie_word_embeddings": False}),
    "gptj": ("GPTJ", {"rotary_dim": 6, "n_inner": 24}),
    "gptj-whole": ("GPTJ", {"rotary_dim": 4, "num_attention_heads": 4, "n_inner": 36}),
    "opt": ("OPT", {"ffn_dim": 36}),
    "opt-plain": ("OPT", {"ffn_dim": 36, "enable_bias": False, "activation_function": "gelu",
                          "layer_norm_elementwise_affine": False, "tie_word_embeddings": False}),
    "exaone4": ("Exaone4", {"sliding_window": None, "layer_types": [GLOBAL, GLOBAL],
                            "rope_theta": 1e6, "rope_scaling": LLAMA3,
                            "tie_word_embeddings": True}),
    "exaone4-hybrid": ("Exaone4", {"sliding_window": 3, "sliding_window_pattern": 2,
                                   "num_hidden_layers": 3, "head_dim": 12, "rope_theta": 1e6}),
    "exaonemoe": ("ExaoneMoe", {"sliding_window": 3, "layer_types": [LOCAL, GLOBAL, LOCAL],
                                "num_hidden_layers": 3, "head_dim": 12, "rope_theta": 1e6,
                                "mlp_layer_types": ["sparse", "dense", "sparse"], "num_experts": 4,
                                "num_experts_per_tok": 2, "moe_intermediate_size": 12}),
    "exaonemoe-groups": ("ExaoneMoe", {"sliding_window": 3, "sliding_window_pattern": 2,
                                       "first_k_dense_replace": 0, "head_dim": 8,
                                       "num_experts": 8, "num_experts_per_tok": 3,
                                       "moe_intermediate_size": 12, "num_shared_experts": 2,
                                       "n_group": 4, "topk_group": 2, "norm_topk_prob": False}),
    "hunyuan": ("HunYuanDenseV1", {"head_dim": 8, "attention_bias": True}),
    "hunyuan-alpha": ("HunYuanDenseV1", {"head_dim": 12, "tie_word_embeddings": True,
                                         "rope_scaling": {"type": "dynamic", "alpha": 1000.0,
                                                          "factor": 1.0, "mscale": 1.0,
                                                          "mscale_all_dim": 1.0}}),
    "hunyuanmoe": ("HunYuanMoEV1", {"head_dim": 8, "num_experts": 4, "moe_topk": 2,
                                    "tie_word_embeddings": True,
                                    "rope_scaling": {"type": "dynamic", "alpha": 1000.0,
                                                     "factor": 1.0}}),
    "hunyuanmoe-lists": ("HunYuanMoEV1", {"head_dim": 12, "num_experts": 4,
                                          "moe_topk": [3, 3], "attention_bias": True}),
    "gptoss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
                          "sliding_window": 3, "num_hidden_layers": 3, "swiglu_limit": 0.4,
                          "rope_scaling": YARN | {"truncate": False}}),
    "gptoss-defaults": ("GptOss", {"num_local_experts": 4, "head_dim": 8,
                                   "attention_bias": False}),
}
# Case → what weights are multiplied by, for scores and logits beyond the caps, or for float32 to be as
# exact as elsewhere.
FACTORS = {"gemma2": {"q_proj": 12.0, "embed_tokens": 8.0}, "gptoss": {"sinks": 6.0},
           "zamba2": {"linear.weight": 0.2, "_adapter": 0.4, "q_proj": 0.3},
           "zamba2-plain": {"linear.weight": 0.3}}
# Case → seed other than 1, for weights with which float32 is as exact as elsewhere, or every expert is
# chosen.
SEEDS = {"kimilinear-other": 5, "qwen3_5moe": 10, "qwen3next": 9, "qwen3next-step": 9,
         "deepseek2-groups": 3, "lfm2moe": 3,
         "ernie4_5moe": 2, "glm4moe-groups": 2, "dots1-groups": 6, "exaonemoe": 2, "exaonemoe-groups": 2,
         "laguna-elements": 5, "zamba2": 7, "zamba2-plain": 3,
         "nemotron_h-latent": 6, "phimoe": 15, "phimoe-short": 3, "solar_open": 3,
         "solar_open-groups": 3}
# Without a class of the language model alone.
SEE = ("Qwen2VL", "Qwen2_5_VL", "Qwen3VL", "Qwen3VLMoe")
HAVE_TEXT_CONFIGS = SEE + ("Gemma3", "Gemma3n", "Gemma4", "Gemma4Unified", "Llama4", "Qwen3_5", "Qwen3_5Moe")
COMMON = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 29,
          "max_position_embeddings": 64, "pad_token_id": 0}


def halves(kind, value, axis):
    """Of gate and up in one tensor each alone: the one behind the other, or in gpt-oss in turn and, of
    matrices, on the other side, as in Llama 4."""
    if kind == "Llama4":
        value = value.transpose(1, 2)
    if kind != "GptOss":
        return value.chunk(2, axis)
    return [value[..., at::2].transpose(1, 2) if value.ndim == 3 else value[..., at::2]
            for at in (0, 1)]


def joined_norms(values):
    """StableLM's norms of heads as Lumen has them, one tensor of all."""
    result = {}
    for name, value in values.items():
        place, is_one, rest = name.partition("_layernorm.norms.")
        if is_one:
            result.setdefault(place + "_layernorm.weight", []).append(value)
        else:
            result[name] = value
    return {name: torch.stack(value) if isinstance(value, list) else value
            for name, value in result.items()}


def convolutions_apart(values):
    """A convolution of q, k and v together as files of OLMo Hybrid have it, one of each."""
    result = {}
    for name, value in values.items():
        place, found, _ = name.rpartition(".conv1d.weight")
        if not found or f"{place}.q_proj.weight" not in values:
            result[name] = value
            continue
        sizes = [values[f"{place}.{x}_proj.weight"].shape[0] for x in "qkv"]
        result |= {f"{place}.{x}_conv1d.weight": part for x, part in zip("qkv", value.split(sizes))}
    return result


def by_expert(kind, values):
    """Experts as Lumen has them, each with matrices of its own, from transformers' fused ones. So
    they are in files of all families but gpt-oss, Qwen3.5 and Granite, of which those without experts have
    the layer that all tokens go through as it is."""
    mixtral = kind in ("Mixtral", "MiniMaxM2", "Phimoe")
    short = mixtral or kind in ("Lfm2Moe", "KimiLinear")
    values = convolutions_apart(joined_norms(values))
    names = ("w1", "w3", "w2") if short else ("gate_proj", "up_proj", "down_proj")
    has_experts = any(".experts." in name for name in values)
    result = {}
    for name, value in values.items():
        if mixtral:
            name = name.replace(".mlp.router.", ".mlp.gate.").replace(".mlp.", ".block_sparse_moe.")
        if kind == "KimiLinear":
            name = name.replace(".forget_gate.", ".")
            for part in (".mlp.experts.", ".mlp.gate.", ".mlp.shared_experts."):
                name = name.replace(part, part.replace(".mlp.", ".block_sparse_moe."))
        place, _, last = name.rpartition(".")
        if (place.endswith(".shared_mlp.input_linear") and has_experts and
                kind != "GraniteMoeSWA"):
            for part, half in zip(names, value.chunk(2, 0)):
                result[name.replace("input_linear", part)] = half
            continue
        if kind != "GraniteMoeSWA":
            name = name.replace("moe.router.weight", "moe.router.layer.weight")
        name = name.replace("gate.moe_statics", "moe_statics")
        if kind == "Lfm3":
            name = name.replace(".g_proj.", ".gate_proj.")
        if kind == "HYV3":
            for module, stored in ((".mlp.gate.", ".mlp.router.gate."),
                                   (".e_score_correction_bias", ".expert_bias"),
                                   (".shared_experts.", ".shared_mlp.")):
                name = name.replace(module, stored)
        if kind == "Laguna":
            for module, stored in ((".gate.e_score_", ".experts.e_score_"),
                                   (".shared_experts.", ".shared_expert.")):
                name = name.replace(module, stored)
        if kind == "ExaoneMoe":
            name = name.replace("gate.e_score_correction", "e_score_correction")
        if kind in ("NemotronH", "Mamba", "FalconMamba", "Mamba2", "GPTNeoX", "Falcon", "GPTBigCode",
                    "GPTJ", "OPT", "Bloom", "Mpt"):
            for own, usual in (("backbone.", "model."), ("model.embeddings.", "model.embed_tokens."),
                               ("gpt_neox.", "model."),
                               ("model.embed_in.", "model.embed_tokens."),
                               ("model.decoder.", "model."), ("transformer.", "model."),
                               ("model.final_layer_norm.", "model.norm."),
                               ("model.ln_f.", "model.norm."), ("model.h.", "model.layers."),
                               ("model.norm_f.", "model.norm."),
                               ("model.blocks.", "model.layers."),
                               ("model.wte.", "model.embed_tokens."),
                               ("model.word_embeddings.", "model.embed_tokens."),
                               (".ln_mlp.", ".input_layernorm.")):
                name = name.replace(own, usual)
            place, _, last = name.rpartition(".")
        if has_experts and kind != "GraniteMoeSWA":
            name = name.replace("shared_mlp.output_linear", "shared_mlp.down_proj")
        if last == "gate_up_proj" and place.endswith(".experts"):
            parts = dict(zip(names, halves(kind, value, 1)))
        elif last.endswith("_proj_bias"):
            both = names[:2] if last.startswith("gate_up") else names[2:]
            biases = halves(kind, value, 1) if len(both) == 2 else [value]
            result |= {f"{place}.{part}.bias": bias for part, bias in zip(both, biases)}
            continue
        elif last == "down_proj" and place.endswith(".experts"):
            parts = {names[2]: value.transpose(1, 2) if kind in ("GptOss", "Llama4") else value}
        elif last == "up_proj" and place.endswith(".experts"):
            parts = {names[1]: value}
        else:
            result[name] = value
            continue
        for part, all_experts in parts.items():
            for expert, matrix in enumerate(all_experts):
                result[f"{place}.{expert}.{part}.weight"] = matrix
    return result


def parameters(model):
    return [(name.replace("language_model.", ""), p) for name, p in model.named_parameters()
            if ".visual." not in name]


def as_ling(values):
    """The tensors of a GLM-4.5 as Ling 2.0 has them, with one matrix for queries, keys and values."""
    result = {}
    for name, value in values.items():
        place, found, part = name.partition(".self_attn.")
        if found and part[:2] in ("k_", "v_") and part.endswith("_proj.weight"):
            continue
        if part == "q_proj.weight":
            value = torch.cat([values[f"{place}.self_attn.{x}_proj.weight"] for x in "qkv"])
        for own, there in ((".self_attn.q_proj", ".attention.query_key_value"),
                           (".self_attn.o_proj", ".attention.dense"),
                           (".self_attn.q_norm", ".attention.query_layernorm"),
                           (".self_attn.k_norm", ".attention.key_layernorm"),
                           (".gate.e_score_correction_bias", ".gate.expert_bias")):
            name = name.replace(own, there)
        result[name] = value
    return result


def ling_config(config):
    same = ("hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "n_group",
            "topk_group", "num_experts_per_tok", "routed_scaling_factor", "first_k_dense_replace",
            "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")
    rope = config["rope_parameters"]
    return {key: config[key] for key in same} | {
        "model_type": "bailing_moe_v2", "num_experts": config["n_routed_experts"],
        "num_shared_experts": config["n_shared_experts"], "rope_theta": rope["rope_theta"],
        "rotary_dim": int(config["head_dim"] * rope["partial_rotary_factor"]),
        "use_qk_norm": config["use_qk_norm"], "use_qkv_bias": config["attention_bias"]}


def minicpm_config(config):
    same = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps",
            "tie_word_embeddings")
    return {key: config[key] for key in same} | {
        "model_type": "minicpm", "rope_theta": config["rope_parameters"]["rope_theta"],
        "scale_emb": config["embedding_multiplier"],
        "scale_depth": config["residual_multiplier"] * config["num_hidden_layers"] ** 0.5,
        "dim_model_base": config["hidden_size"] / config["logits_scaling"]}


def trained(model):
    return [(name, p) for name, p in parameters(model) if p.requires_grad]


def seeing(kind, config):
    """A whole model around a language model, with a small part that sees."""
    small = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "embed_dim": 16,
             "out_hidden_size": config.hidden_size, "mlp_ratio": 1, "fullatt_block_indexes": [],
             "deepstack_visual_indexes": []}
    tied = getattr(config, "tie_word_embeddings", False)
    whole = getattr(transformers, kind + "Config")(
        text_config=config.to_dict(), vision_config=small, tie_word_embeddings=tied)
    whole._attn_implementation = whole._experts_implementation = "eager"
    return getattr(transformers, kind + "ForConditionalGeneration")(whole)


def balance(model, tokens):
    """Of a mixture of experts, what transformers adds to its loss for even use of them."""
    config = model.config
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    module = sys.modules[type(model).__module__]
    has_loss = hasattr(module, "load_balancing_loss_func")
    if not has_loss or not experts or config.num_experts_per_tok >= experts:
        return {}
    routed = model(tokens, output_router_logits=True)
    counts = torch.ones_like(tokens)
    counts[1, 7:] = 0
    loss = module.load_balancing_loss_func(
        routed.router_logits, experts, config.num_experts_per_tok, counts)
    wanted = {name: parameter for name, parameter in trained(model) if ".layers.0." in name}
    gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    result = {name: gradient for name, gradient in zip(wanted, gradients) if gradient is not None}
    return result | {"loss": torch.stack([routed.aux_loss, loss]), "counts": counts.int()}


# Of cases that are computed by another family, whose config is said in the keys of their own.
OTHER_CONFIGS = {"ling": ling_config, "minicpm": minicpm_config}


def main():
    directory = pathlib.Path(sys.argv[1])
    configs, arrays = {}, {}
    for label, (kind, keys) in CASES.items():
        torch.manual_seed(SEEDS.get(label, 1))
        name = kind + ("TextConfig" if kind in HAVE_TEXT_CONFIGS else "Config")
        # Of copies, as transformers adds to what it is given, which several cases share.
        config = getattr(transformers, name)(**copy.deepcopy(COMMON | keys))
        config._attn_implementation = config._experts_implementation = "eager"
        model = (seeing(kind, config) if kind in SEE
                 else transformers.Mistral4ForCausalLM(config) if kind == "Mistral4"
                 else transformers.AutoModelForCausalLM.from_config(config))
        model = model.double().eval()
        state = dict(parameters(model)) | {
            name: buffer for name, buffer in model.named_buffers()
            if any(part in name for part in ("correction", "expert_bias", "layer_scalar", "act_fn"))}
        with torch.no_grad():
            for name, parameter in state.items():
                parameter.add_(torch.randn_like(parameter) * 0.3)
                for part, factor in FACTORS.get(label, {}).items():
                    parameter.mul_(factor if part in name else 1.0)
                parameter.copy_(parameter.float().double())
        tokens = torch.randint(1, COMMON["vocab_size"], (2, 12))
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1),
                                                 tokens[:, 1:].flatten(), reduction="sum")
        wanted = {name: parameter for name, parameter in trained(model)
                  if ".layers.0." in name or ".h.0." in name or ".blocks.0." in name or
                  name.endswith((
                      "_embeddings_layernorm.weight", ".norm_f.weight", "model.norm.weight",
                      ".ln_f.weight", "x.final_layer_norm.weight",
                      "decoder.final_layer_norm.weight"))}
        gradients = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
        # Without rotation a bias of keys changes nothing: all that is left of it is rounding.
        of_used = {n: g for n, g in zip(wanted, gradients)
                   if g is not None and not (kind == "OPT" and n.endswith("k_proj.bias"))}
        stored = json.loads(config.to_json_string())  # as in a file, where no number is infinite
        configs[label] = stored | {"model_type": config.model_type}
        if label in OTHER_CONFIGS:
            configs[label] = OTHER_CONFIGS[label](stored)
        values = by_expert(kind, state)
        of_weights = by_expert(kind, of_used)
        if label == "ling":
            values, of_weights = as_ling(values), as_ling(of_weights)
        values |= {f"gradient/{n}": g for n, g in of_weights.items()}
        values |= {f"balance/{n}": g for n, g in by_expert(kind, balance(model, tokens)).items()}
        values |= {"tokens": tokens.int(), "logits": logits}
        for name, value in values.items():
            value = value.detach().numpy()
            arrays[f"{label}/{name}"] = np.array(
                value.astype(np.float32) if value.dtype == np.float64 else value, order="C")
    made = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({"made with": made, "configs": configs}, indent=1, sort_keys=True)
    (directory / "families.json").write_text(text + "\n")
    safetensors.numpy.save_file(arrays, directory / "families.safetensors")


if __name__ == "__main__":
    main()
