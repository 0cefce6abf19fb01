// Prints the descriptors that the tensor core kernels should pass, as CUTLASS builds them: from its bit fields and from its
// own layouts of tiles, none of which the kernels are made from. `kernels/build --descriptors` compares.
//
//   instruction FILE VALUE         the instruction descriptor of a tcgen05 kernel
//   tile FAMILY STEP VALUE OFFSET  a tile's descriptor at address 0, and how many bytes behind the tile's start it begins
#include <cstdint>
#include <cstdio>

#include <cute/tensor.hpp>

#include <cute/arch/mma_sm100_desc.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

using namespace cute;

// All kernels multiply 128 rows by 256 columns (tcgen05), and tiles whose rows run along k.
constexpr auto K_UMMA = UMMA::Major::K;
constexpr auto K_GMMA = SM90::GMMA::Major::K;

template <class Element, class Sum> void instruction(const char *file) {
    const auto value = UMMA::make_instr_desc<Element, Element, Sum, 128, 256, K_UMMA, K_UMMA>();
    std::printf("instruction %s %08x\n", file, static_cast<uint32_t>(value));
}

template <class Element, class Factor> void scaled_instruction(const char *file) {
    const auto value =
        UMMA::make_instr_desc_block_scaled<Element, Element, float, Factor, 128, 256, K_UMMA, K_UMMA>();
    std::printf("instruction %s %08x\n", file, static_cast<uint32_t>(value));
}

alignas(1024) uint8_t memory[256 * 128];

// The tiles of the instructions, 32 bytes of each row, that a tile with rows of so many bytes is divided into.
template <int ROW, class Atom, class Describe> void tiles(const char *family, Atom atom, Describe describe) {
    using Element = half_t;
    constexpr int WIDTH = 32 / sizeof(Element);
    const auto layout = tile_to_shape(atom, Shape<Int<256>, Int<ROW / sizeof(Element)>>{});
    const auto whole = make_tensor(make_smem_ptr(reinterpret_cast<Element *>(memory)), layout);
    for (int step = 0; step < ROW / 32; ++step) {
        const auto part = local_tile(whole, Shape<Int<256>, Int<WIDTH>>{}, make_coord(0, step));
        const auto *start = reinterpret_cast<const uint8_t *>(raw_pointer_cast(part.data()));
        const uint64_t value = describe(part);
        std::printf("tile %s %d %016llx %ld\n", family, step, static_cast<unsigned long long>(value),
                    static_cast<long>(start - memory));
    }
}

int main() {
    instruction<half_t, float>("tcgen05_f16");
    instruction<bfloat16_t, float>("tcgen05_bf16");
    instruction<float_e4m3_t, float>("tcgen05_f8");
    instruction<int8_t, int32_t>("tcgen05_i8");
    scaled_instruction<float_e2m1_t, float_ue4m3_t>("tcgen05_nvf4");
    tiles<64>("tcgen05", UMMA::Layout_K_SW64_Atom<half_t>{},
              [](const auto &part) { return uint64_t(UMMA::make_umma_desc<K_UMMA>(part)); });
    tiles<128>("wgmma", SM90::GMMA::Layout_K_SW128_Atom<half_t>{},
               [](const auto &part) { return uint64_t(SM90::GMMA::make_gmma_desc<K_GMMA>(part)); });
}
