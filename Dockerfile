# One image for every role: `coatcheck serve shuffler|server|board|relay|witness`.
# Before production, pin both images by their digests: python:3.12-slim@sha256:...
FROM python:3.12-slim AS build
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements ./requirements
# pip checks every package from outside by its hash, including those that build the wheel.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --require-hashes --requirement requirements/build.lock \
 && python -m venv /opt/coatcheck \
 && /opt/coatcheck/bin/pip install --require-hashes --requirement requirements/image.lock
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /source/dist . \
 && /opt/coatcheck/bin/pip install --no-deps --no-index /source/dist/*.whl

FROM python:3.12-slim
# The process is not root and cannot write to the image.
RUN useradd --system --uid 10001 --home-dir /nonexistent coatcheck \
 && install -d -o coatcheck -m 0700 /keys /keys/own /keys/public /keys/rounds /blobs /data /lists /witnessed
COPY --from=build /opt/coatcheck /opt/coatcheck
ENV PATH=/opt/coatcheck/bin:$PATH PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/tmp
USER coatcheck
ENTRYPOINT ["coatcheck"]
CMD ["--help"]
