// SPDX-License-Identifier: BSL-1.0
//
// Networks as ONNX models, and ONNX models as networks. Not in gradus/gradus.hpp; component gradus::onnx, which needs
// protozero.
#pragma once

#include "gradus/onnx/export.hpp"
#include "gradus/onnx/import.hpp"
#include "gradus/onnx/operators.hpp"
