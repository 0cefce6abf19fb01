# A release for Homebrew on Linux: `brew install --formula ./rooflined.rb`, in the directory with both tarballs.
# packaging/build fills in the version and the sums.
class Rooflined < Formula
  desc "Which format, power mode and batch size meet your target on NVIDIA boards, cards and CPUs"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_intel do
    url "file://#{__dir__}/rooflined-@VERSION@-amd64.tar.gz"
    sha256 "@SHA256_AMD64@"
  end

  on_arm do
    url "file://#{__dir__}/rooflined-@VERSION@-arm64.tar.gz"
    sha256 "@SHA256_ARM64@"
  end

  def install
    bin.install "usr/bin/rooflined", "usr/bin/rooflinectl"
    man1.install Dir["usr/share/man/man1/*"]
    man8.install Dir["usr/share/man/man8/*"]
    bash_completion.install "usr/share/bash-completion/completions/rooflinectl"
    zsh_completion.install "usr/share/zsh/vendor-completions/_rooflinectl"
    fish_completion.install "usr/share/fish/vendor_completions.d/rooflinectl.fish"
  end

  test do
    assert_match "Use ", shell_output("#{bin}/rooflinectl recommend Qwen/Qwen3-4B --hardware orin-nano")
  end
end
