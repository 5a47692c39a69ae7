// SPDX-License-Identifier: BSL-1.0
//
// Fields of numbers as a picture (SVG), for the examples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

/// A field with a title. Values of 0 are dark and values of 1 are light.
struct field_picture {
  std::string title;
  int height = 0;
  int width = 0;
  std::vector<float> values;  // row after row
};

/// Writes an SVG file with rows of fields. Neighbors of one color are one rectangle.
/// Throws std::runtime_error when the file cannot be written.
inline void write_pictures(const std::string& path, const std::vector<std::vector<field_picture>>& rows) {
  constexpr int side = 180;  // of a field, in pixels
  constexpr int gap = 24;
  constexpr int colors = 48;
  std::size_t columns = 0;
  for (const auto& row : rows) {
    columns = std::max(columns, row.size());
  }
  std::ofstream file{path};
  file << "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"13\" width=\""
       << gap + static_cast<int>(columns) * (side + gap) << "\" height=\""
       << gap + static_cast<int>(rows.size()) * (side + gap)
       << "\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const field_picture& field = rows[r][c];
      file << "<g transform=\"translate(" << gap + static_cast<int>(c) * (side + gap) << ","
           << gap + static_cast<int>(r) * (side + gap) << ")\"><text y=\"-6\">" << field.title
           << "</text><g shape-rendering=\"crispEdges\" transform=\"scale(" << static_cast<double>(side) / field.width
           << ")\">\n";
      const auto color = [&](int y, int x) {
        const float value = field.values[static_cast<std::size_t>(y * field.width + x)];
        return static_cast<int>(std::lround(std::clamp(value, 0.0F, 1.0F) * (colors - 1)));
      };
      for (int y = 0; y < field.height; ++y) {
        for (int x = 0; x < field.width;) {
          int end = x + 1;
          while (end < field.width && color(y, end) == color(y, x)) {
            ++end;
          }
          const double t = static_cast<double>(color(y, x)) / (colors - 1);  // dark blue, orange, pale yellow
          file << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << end - x << "\" height=\"1\" fill=\"rgb("
               << std::lround(255 * std::min(1.0, 0.08 + 1.5 * t)) << "," << std::lround(255 * (0.10 + 0.85 * t * t))
               << "," << std::lround(255 * (0.30 + 0.45 * t * t * t)) << ")\"/>\n";
          x = end;
        }
      }
      file << "</g></g>\n";
    }
  }
  file << "</svg>\n";
  if (!file.flush()) {
    throw std::runtime_error{"cannot write " + path};
  }
}
