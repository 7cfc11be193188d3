# One image for every role: `coatcheck serve shuffler|server|board`.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/coatcheck \
 && /opt/coatcheck/bin/pip install --no-cache-dir --disable-pip-version-check '.[serve,fast]'

FROM python:3.12-slim
# The process is not root and cannot write to the image.
RUN useradd --system --uid 10001 --home-dir /nonexistent coatcheck \
 && install -d -o coatcheck -m 0700 /keys /keys/own /keys/public /keys/rounds /data
COPY --from=build /opt/coatcheck /opt/coatcheck
ENV PATH=/opt/coatcheck/bin:$PATH PYTHONDONTWRITEBYTECODE=1 NUMBA_CACHE_DIR=/tmp
USER coatcheck
ENTRYPOINT ["coatcheck"]
CMD ["--help"]
